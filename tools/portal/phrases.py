"""Turns of phrase that every label shares."""

from __future__ import annotations

from textwrap import dedent


def lines(text: str) -> tuple[str, ...]:
    """One template per line; an indented line continues the one before."""
    return tuple(dedent(text).strip().replace("\n    ", " ").splitlines())


BASE: dict[str, tuple[str, ...]] = {
    "can_you": (
        "can you", "could you", "can you please", "could you please", "could someone",
        "can someone there", "would you be able to", "please", "I need you to", "I'd like you to",
        "I was hoping you could", "I'd appreciate it if you could", "are you able to",
        "can your office", "could the office", "is there someone who could", "can the nurse",
        "would you mind if I ask you to", "I'm asking you to", "can anybody", "please just",
        "hoping you can", "could somebody on your team", "would you", "will you please",
        "can one of you", "could I get you to", "can I ask you to", "do you have time to",
        "is anyone able to", "I'm hoping somebody will", "it'd help if you could",
        "would it be ok to", "the sooner you can the better, please", "could the desk",
        "if possible, please", "might you", "may I trouble you to", "I want to ask you to",
        "do me a favor and",
    ),
    "wonder": (
        "I'm wondering", "I was wondering", "I'm not sure", "I don't know", "I'd like to know",
        "I can't tell", "can you tell me", "do you know", "could you say",
        "I'm trying to find out", "nobody has told me", "I keep asking myself", "please tell me",
        "I forgot to ask", "it isn't clear to me", "can someone explain", "I need to know",
        "I never found out", "I can't figure out", "I couldn't find out", "my question is",
        "I'd love to hear", "I have no clue", "would you know", "does anybody know",
        "it'd help to know", "I wonder", "I didn't catch", "help me understand",
        "I don't remember", "I can't work out", "we were wondering", "I meant to ask",
        "the question is",
    ),
    "soon": (
        "soon", "this week", "before <weekday>", "by <weekday>", "when you get a minute",
        "as soon as you can", "whenever you get a chance", "today if possible",
        "by the end of the week", "before the weekend", "in the next day or two", "sometime today",
        "this morning if you can", "before I leave on <weekday>", "by tomorrow",
        "when you have a free moment",
    ),
    "reply": (
        "let me know", "tell me", "message me back", "write back", "send me a note",
        "drop me a line", "give me a call", "get back to me", "leave me a message", "call me back",
    ),
    "kin": (
        "my husband", "my wife", "my sister", "my neighbor", "my brother", "a coworker",
        "my cousin", "my roommate", "my mother-in-law", "my best friend", "my boss", "my aunt",
    ),
    "staff": (
        "the nurse", "the front desk", "somebody in your office", "the person who answered",
        "a recording", "the receptionist", "the medical assistant", "your answering service",
        "whoever picked up", "a young man on the phone", "the lady at the desk", "the call center",
    ),
    "family": ("my husband", "my wife", "my sister", "my daughter", "my aunt", "a nurse friend"),
    "very": ("very", "really", "pretty", "so", "quite", "awfully", "kind of", "a bit", "rather"),
    "med": (
        "{my} {drug}", "the {drug}", "{drug} {dose}", "{my} {drug} {dose}", "{drug}",
        "the {drug} {dose}", "{my} {condadj} medicine ({drug})", "{my} {drug} ({dose})",
    ),
    "meds": (
        "{my} {drug}", "the {drug}", "{drug}", "{drug} {dose}", "{my} {drug} {dose}",
        "{my} {condadj} medicine ({drug})", "the {drug} {dose}", "{my} {drug} ({dose})",
    ),
    "second": (
        "Also,", "Separately,", "While I have you,", "Another thing,", "Unrelated, but", "P.S.",
        "On another note,", "One more thing,", "And since I'm writing,", "By the way,", "Plus,",
        "Different subject,", "Oh, and", "I may as well mention,", "Before I forget,",
    ),
    "part": ("morning", "afternoon", "early morning", "late afternoon", "lunchtime", "mid morning"),
    "thetest": (
        "{my} {test}", "the {test}", "the {test} from {date}", "the {test} {doc} ordered",
        "{my} {test} on {date}", "the {test} at {lab}",
    ),
    "visit": (
        "{my} visit on {date}", "the appointment with {doc} on {date}", "the {date} visit",
        "{my} checkup {date}", "the visit with {doc}",
    ),
    "slot": (
        "{apptday} at {appttime}", "{apptday}, {appttime}", "{apptday}", "{apptday} with {doc}",
        "{apptday} at {appttime} with {doc}",
    ),
    "sum": ("${amount}", "the ${amount}", "a bill for ${amount}", "that ${amount}",
    "the ${amount} line"),
    "because": (
        "because", "since", "as", "and the reason is", "mostly because", "seeing that",
        "given that",
    ),
    "excuse": (
        "I {job}", "I don't get off work until {3..7}", "the car is in the shop",
        "school lets out at {2..3}:{10..55}", "I only have the sitter on <weekday>s",
        "the bus from {town} runs {2..4} times a day", "<kin> has to drive me",
        "I'm on the road until <weekday>", "it's an hour each way from {town}",
        "I have jury duty <weekday>", "I share one car with <kin>", "my shift changed again",
        "we have a funeral on <weekday>", "I used up my leave for the month",
    ),
    "daypart": ("morning", "afternoon", "evening", "night"),
}  # fmt: skip

# How a follow-up begins.
BASE["opener"] = lines("""
[Following up on|About|Regarding|Circling back to] [my|the] [message|note] [from|of] {sent}
    [about|on] {topic}.
I wrote [on|] {sent} about {topic} [and|but] [have not heard back|no one answered|am still
    waiting].
[Me again|It's me again|Second message], [about|still about|on] {topic}.
[This is|It's] about {topic} [again|once more], [see|from] my message [on|of] {sent}.
[Any|Is there any] [news|word|update] [on|about] {topic}? I [asked|wrote] {sent}.
[Update|Quick update|A little more] on {topic} [since {sent}|from {sent}|].
[Sorry to nag|Not to pester], but [I'm back about|I have to ask again about|this is still about]
    {topic}.
""")

# Small talk and background any writer may add; nothing here belongs to one label.
BASE["life"] = lines("""
[I'm sorry|Sorry] [this is|if this is] [so long|a lot|rambling|a silly question].
[It's been|This has been] [a|quite a|one] [long|hectic|strange|hard] [week|month|spring|stretch]
    [over here|for us|in {town}].
[I know|I realize] [you're|everyone there is] [busy|swamped|short staffed] [right now|this time of
    year|as always].
[I tried|We tried] calling [<past>|twice|this morning] and [got|only got|reached] <staff> [after
    {10..50} minutes on hold|and gave up|who said to write here].
[Just so you know,|For what it's worth,|By the way] I {job}[, if that matters|, which you may
    recall| so the phone is tricky].
[We|I] [moved|just moved] [to|out to] {town} [in <month>|last year|this summer][ so the address
    changed|].
[This portal|The app|The website] [keeps|kept] [logging me out|freezing|losing my draft], [so|and]
    [sorry|excuse me] if [you got this twice|this comes through twice|part is missing].
I'm [typing this|writing this|sending this] [from my phone|on my break|in the parking lot|from the
    bus|at <clock>].
[I've been|We have been] [with|coming to|going to] [{clinic}|{doc}|your practice] [for {3..22}
    years|since we moved here] and [never had|don't usually have] [a problem|trouble|complaints].
[<kin> says|My family thinks|<kin> told me] I [worry|wait|talk] too [much|long], [but here I am|so
    I'm asking|we'll see].
[The weather|The heat|All this rain] [hasn't helped|isn't helping|makes everything harder]
    [either|out here in {town}|].
[I can|I could] [send a photo|upload the papers|come in person] if [that helps|it's easier|you
    want].
[Nothing|Not much] else [has changed|is different] [since {date}|since <pastday>|that I can think
    of].
[I wrote|I jotted] [all this|it] down [so I wouldn't forget|on the calendar|like you told me to].
[I hope|Hope] [everyone is|you and the staff are|all of you are] [well|keeping well|not too
    swamped] [over there|this week|].
[Last time|The last time] [I asked|this came up], [it took|that was] {3..12} [days|phone
    calls|messages] to [sort out|settle|fix].
""")

BASE["contact"] = lines("""
[Best|The best|My best] number is {phone}[ after {3..6}| most days| and texting is fine|].
[You can|Please|You can always] [reach|call|get] me at {phone}[ any time| before {9..11}| during
    lunch| after work|].
[Call|Ring|Text] {phone} [if you need|with any|for] [anything|questions|more information].
My [cell|number|phone] is [still|now] {phone}[, leave a message| if you lost it| in case it
    changed|].
{my} record number is {mrn}[ if that helps| in case you need it|, I have it right here|].
(I'm/The patient is) {name}, {mrn}[, born {dob}| in your system|].
[Record|Chart|Patient number] {mrn}, [date of birth|dob|born] {dob}.
[Email|Mail to|A note to] {email} [works too|is fine|is best if the portal is down].
[If I don't pick up|If you get voicemail] at {phone}, [try {email}|leave word|just send a message
    here].
{dob}, {mrn}[, {phone}|].
{my} [birthday|date of birth] is {dob} [and the chart number is|and the record is] {mrn}.
""")

BASE["close"] = lines("""
[Thanks|Thank you] for [your help|reading this|your time|looking into it|all you do].
[Please|Just] <reply> <soon>.
[I'd|I would] [appreciate|be glad of|like] [a quick answer|a reply|an answer] <soon>.
[Thanks|Thank you] [in advance|so much|again|kindly].
[I'll|I will] [check|keep an eye on|look at] [the portal|my messages|this page]
    [tonight|tomorrow|over lunch|on <weekday>].
[Looking forward|I look forward] to [hearing from you|your reply|your answer] [<soon>|].
[Any help|Some guidance|A little advice] [is|would be] [appreciated|welcome|a relief].
Have a [good|nice|quiet] [week|weekend|<weekday>|rest of the day].
""")
