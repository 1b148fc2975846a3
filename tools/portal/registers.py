"""How each kind of writer says what all of them say: phrases, greetings, signatures."""

from __future__ import annotations

from tools.portal.phrases import lines

REGISTERS = ("plain", "terse", "chatty", "worried", "formal", "elderly")

# Where a register says a common phrase its own way.
VOICED: dict[str, dict[str, tuple[str, ...]]] = {
    "terse": {
        "can_you": ("pls", "can you", "need you to", "can someone", "please", "could you"),
        "wonder": (
            "not sure", "wondering", "do you know", "need to know", "can you say", "tell me",
        ),
        "reply": ("call me", "message me", "let me know", "txt me", "call back"),
        "soon": ("asap", "today", "by <weekday>", "this week", "before {3..5} today", "soon"),
        "life": lines("""
            [at|on my way to] work, [cant|can't] [talk|pick up] [till|before] {3..7}.
            [called|tried calling] [twice|<past>], [on hold {15..50} min|no answer|got <staff>].
            [2nd|3rd] [time|message] [asking|about this].
            [same|nothing new] since {date}.
            [in|coming from] {town}[, no car| so need notice|].
        """),
        "contact": lines("""
            {phone}.
            [Cell|Call|Text] {phone}[ after {3..6}|].
            {mrn}, dob {dob}.
            {name} {mrn}.
            {phone}, [vm ok|leave msg|evenings ok].
        """),
        "close": ("Thx.", "Thanks.", "Thank you.", "Ty.", "<reply> <soon>.", "Need answer <soon>."),
    },
    "chatty": {
        "can_you": (
            "could you maybe", "any way you could", "can you be a dear and",
            "would you be able to", "can you pretty please", "I'd love it if you could",
            "could somebody nice", "could I ask you to", "do you think you could",
            "when you get a sec could you",
        ),
        "close": lines("""
            You [all|guys|folks] are [the best|lifesavers|wonderful], [really|truly|thank you].
            [Thanks|Thank you] [a million|a bunch|so so much|a ton][ for everything|, really|]!
            Tell [{doc}|<staff>|everyone] [hello from me|I said hi|the cookies are coming]!
            [Ok that's it|That's all|Ok I'm done] [from me|for now|I promise]!
            [Can't wait|Hoping] to [hear back|get an answer|see a reply] <soon>!
        """),
    },
    "worried": {
        "can_you": (
            "please can you", "can someone please", "please could somebody", "can you please",
            "I really need you to", "could the nurse please", "I'd be so relieved if you could",
            "would you please", "please, could {doc}", "is it possible for {doc} to",
        ),
        "soon": (
            "today please", "as soon as possible", "before tonight", "right away if you can",
            "before the weekend", "today, I can't sleep over this", "in the next few hours",
        ),
        "close": lines("""
            [I'm sorry|Sorry] to [bother you|be a pest|keep writing], I just [worry|can't stop
                thinking about it|need to know].
            [Please don't|I hope you don't] [ignore this|leave me waiting|think I'm overreacting].
            [I'm|I am] [<very> anxious|losing sleep|a nervous wreck] [about this|over it|here].
            [Should I be|Do I need to be] [worried|scared|concerned]?
            Please <reply> <soon>.
        """),
    },
    "formal": {
        "can_you": (
            "would you kindly", "I would be grateful if you could", "may I ask that you",
            "I request that you", "could you please", "kindly", "I would ask that you",
            "would it be possible for you to", "I should be obliged if you would", "please",
            "might your office",
        ),
        "wonder": (
            "I would like to understand", "kindly advise", "I wish to confirm", "please clarify",
            "I would be interested to learn", "could you confirm", "I am uncertain",
        ),
        "soon": (
            "at your earliest convenience", "by <weekday>", "within the week", "in due course",
            "before the end of the month", "within two business days", "by close of business",
        ),
        "reply": ("reply", "respond in writing", "advise me", "telephone me", "confirm by message"),
        "life": lines("""
            [I have|We have] been [a patient|in the care] of [{clinic}|{doc}|your practice] [since
                {1998..2021}|for {4..19} years].
            [For your records,|Please note that|I should add that] [our|my] address is now in
                {town}.
            [My telephone call|A call I placed] [on <weekday>|<past>] was [not returned|answered by
                <staff>].
            [I enclose|I am attaching|I can provide] [the relevant page|a copy|documentation] [for
                reference|if required].
        """),
        "close": lines("""
            [I thank you|Thank you] for your [attention to this matter|prompt
                assistance|courtesy|consideration].
            [I await|I look forward to] your [reply|response|written answer][ <soon>|].
            [Please do not hesitate|You are welcome] to [contact|telephone|write to] me [with any
                questions|at {phone}|should you need more].
        """),
    },
    "elderly": {
        "can_you": (
            "would you be so kind and", "could you please", "can the nurse", "would one of you",
            "I would like you to", "could you have the girl at the desk", "please",
            "I'd be much obliged if you'd", "can you kindly", "will you",
        ),
        "life": lines("""
            [At {age} I|I'm {age} and I] {hobby}, [so I like to stay on top of things|so you'll
                understand|and intend to keep it up].
            [My|The] [grandson|granddaughter|neighbor] [set up|helped me with|showed me] this
                [computer message|portal|tablet], so [excuse the mistakes|I hope it goes through].
            [I don't|I do not] [hear|see] [as well as I used to|so good on the phone], so [please
                write|speak up|use big letters].
            I {hobby} [and|but] [<daypart>s|<weekday>s] [are best|are my busy time|I'm usually
                home].
            [I have|I've] been [coming to|seeing] {doc} [since {1989..2014}|for {11..30} years][
                and trust the advice| now|].
        """),
        "close": lines("""
            [God bless|Bless you all|Take care of yourselves].
            [Thank you|Thanks], dear[, and regards to {doc}|].
            [Please|You may] [telephone|ring|call] [as|because] I [don't check|seldom look at] this
                [every day|machine|computer].
            [With kind thoughts|With best wishes|My regards] [to all|to the nurses|to everyone
                there].
        """),
    },
}  # fmt: skip

GREETINGS: dict[str, tuple[str, ...]] = {
    "plain": (
        "[Hi|Hello|Good <hello>],", "[Hi|Hello] {doc},", "[Hi|Hello] [there|again|team|all],",
        "[Hi|Hello], {writer} here.", "{doc},", "[Hello|Hi], this is {writer}.",
        "[Hi|Hello] {doc} [and team|and nurses|],", "", "", "", "",
    ),
    "terse": ("", "", "", "", "", "Hi,", "{doc} -", "Hey,", "{writer} here.", "Hello,"),
    "chatty": (
        "[Hi|Hey] {doc}!", "[Hey|Hi] [there|everyone|folks|team]!", "Happy <weekday>!",
        "[Hi hi|Hello|Hey], it's {writer} again!", "[Hello lovely people|Well hello|Hi all],",
        "Hey {doc},", "Good <hello>!", "[Guess who|Me again]!", "", "",
    ),
    "worried": (
       
        "[Hi|Hello], [please can someone|I hope somebody can|could the nurse] read this today.",
        "{doc}, [I'm sorry to bother you|forgive me for writing|I don't know who else to ask].",
        "[Hi|Hello],", "Hello {doc},", "[Please help|Please read this],", "Hi {doc},", "", "", "",
        "I'm [a little scared|nervous|almost embarrassed] to write this.",
        "[Hi|Hello], this [feels urgent|is urgent to me|worries me].", "Good <hello>,",
    ),
    "formal": (
        "Dear {doc},", "Dear {doc} and [staff|colleagues],", "To whom it may concern:",
        "Good <hello>,", "Dear [Sir or Madam|care team|office manager],", "Dear {clinic},",
        "Attention {doc}:", "Good <hello>, {doc}.", "Dear {doc},", "",
    ),
    "elderly": (
        "Dear {doc},", "Good <hello>,", "Hello {doc}, this is {writer}.", "Hello [dear|there],",
        "Good day.", "Dear [nurse|doctor|friends],", "This is {writer}.",
        "Hello to [all|everyone] at the [clinic|office],", "",
    ),
}  # fmt: skip

SIGNATURES: dict[str, tuple[str, ...]] = {
    "plain": (
        "{writer}", "Thanks, {writer}", "- {writer}", "{fullwriter}", "Best, {writer}", "", "", "",
        "{fullwriter}, {phone}", "Thank you, {fullwriter}", "{writer}, {mrn}",
    ),
    "terse": ("", "", "", "{writer}", "-{writer}", "thx {writer}", "{fullwriter} {phone}", "{mrn}"),
    "chatty": (
        "Hugs, {writer}", "xo {writer}", "Cheers, {writer}", "Love, {writer}", "{writer} :D", "",
        "Your favorite patient, {writer}", "Talk soon, {writer}", "Thanks again, {writer}!",
    ),
    "worried": (
        "{writer}", "Thank you, {writer}", "{fullwriter} {phone}", "Please call, {writer}", "", "",
        "{writer} ({phone})", "Thanks, {fullwriter}",
    ),
    "formal": (
        "Sincerely, {fullwriter}", "Kind regards, {fullwriter}", "Respectfully, {fullwriter}",
        "Yours truly, {fullwriter} ({mrn})", "Regards, {fullwriter}, {phone}", "{fullwriter}",
        "With thanks, {fullwriter}, {email}",
    ),
    "elderly": (
        "Sincerely, {fullwriter}", "{fullwriter}", "Yours, {fullwriter}, {phone}",
        "God bless, {writer}", "Warm regards, {fullwriter}", "Respectfully, {fullwriter}", "",
    ),
}  # fmt: skip
