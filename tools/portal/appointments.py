"""Appointments: booking, moving, cancelling, getting there."""

from __future__ import annotations

NAME = "Appointments"

GRAMMAR = """
ask: <wonder> what [days|times] [are|you still have] [open|free|left] [with {doc}|that week|in
  <month>]~
ask: <can_you> [put|write|pencil] {me} [in|down] for [<weekday> <part>|{apptday}|any <weekday>]~
ask: <can_you> [confirm|check|verify] [the time|the day|which office it is] and [text|message|call]
  me [back|<soon>]~
ask: [If|When] [something|a spot|anything] [opens|frees] up, [call|text|message] me [at
  {phone}|right away|even same day], [we'll take it|I can be quick].
detail: [<weekday>s|<part>s|<weekday> <part>s] [are best|work best|are easiest] [because|since|as]
  <excuse>.
detail: I [can't|cannot] [do|make] <weekday>s [at all|before {10..11}|after {1..4}] <because>
  <excuse>.
detail: [Any|Some] [time|slot|opening] after <clock> [works|is fine|would do] [for us|on my
  end|except <weekday>].
detail: [The|Your] online [calendar|scheduler|booking page] [shows|only shows|offers] [nothing|no
  times] [until <month>|before {apptday}|for {doc}].
detail: I [asked|told|spoke to] <staff> [<past>|already] and [was told|they said] [to write
  here|somebody would call|to try <weekday>].
detail: [It's|That's] [a {20..70} minute drive|a long way] from {town}, [so|and] I'd [rather|like
  to] [do it in one trip|not come twice|have a firm time].
detail: (I/We) [would|could] [also|even] see [another doctor|the nurse practitioner|whoever is
  free] if [that's quicker|{doc} is full].
detail: [Video|A phone visit|Telehealth] [would be|is] [fine|even better|ok] [too|with us|if {doc}
  agrees].
detail: It [shouldn't|won't] [take|need] [more than|over] {10..30} minutes, [mostly|just] [to go
  over|a check on] {my} {cond}.
aside: [I'll|We'll] [see you|be there] [at the visit|for the checkup] [on {apptday}|in <month>]
  [anyway|as planned|].
aside: [My|The] next [appointment|checkup] is [already|still] [set for|on] {apptday}, [so no need
  to book|that stays|no change there].
aside: [I can't|I couldn't] [come in|get an appointment] [before <month>|until {apptday}], [so I'm
  writing instead|which is why I write].
aside: (I/We) [saw|were in to see] {doc} [on {date}|<past>] and [all went well|forgot to bring this
  up].
aside: I'm [not asking|not pushing] for [a visit|an appointment] [yet|right now|if it can be
  avoided].
aside: [I can|We can] [reschedule|move] the {apptday} [visit|appointment] if {doc} [wants|thinks
  so].
follow: [Nobody|No one] [has called|called|got back] [about|with] [a time|the new slot|my request]
  [yet|so far|since].
follow: [The {apptday} slot|The time you offered|That new time] [won't|doesn't] work [after all|for
  us], <excuse>.
follow: [Thanks|Thank you] for [the call|finding a spot|squeezing {me} in], but [now I need|we
  need|could it be] [a later hour|another day|<weekday> instead].
follow: [I accepted|I took|I said yes to] [the|that] [{appttime}|{apptday}] [slot|opening] but [no
  confirmation came|it isn't in my calendar|the portal shows nothing].

== book a visit
topic: [booking|a visit|getting in] with {doc}
topic: [getting|making] an appointment
fact: [I need|I'd like|We need|I want] to [schedule|book|set up|make] [an appointment|a visit|a
  time] for {me} with {doc} [about {my} {cond}|<soon>|in <month>].
fact: {doc} [asked|told|wanted] {me} to [come back|be seen|return] in {2..8} [weeks|months],
  [that's about now|so around {apptday}|so I'm scheduling].
fact: [It's been|It has been] {7..26} months since {he} [last saw {doc}|was last in|had a real
  visit] [at {clinic}|] [and|so] [it's time|we're overdue].
fact: [Do you have|Is there] [anything|an opening|a spot] [with {doc}|at {clinic}] [on|around]
  [{apptday}|<weekday>|{apptday} or so]?
ask: <wonder> how [far out|soon] {doc} is [booking|scheduling] [these days|for routine visits]~

== reschedule
topic: [moving|changing] the {apptday} visit
topic: rescheduling [with {doc}|{apptday}|]
fact: [I have to|I need to|We have to] [move|reschedule|change|push back] {my}
  [appointment|visit|checkup] on <slot> <because> <excuse>.
fact: [Something|A conflict|A family thing] [came up|has come up] and <slot> [no longer works|won't
  work|is out] for [us|me].
fact: [Is it|Would it be] [too late|possible] to [swap|trade|move] <slot> for [later that week|a
  <weekday>|something in <month>]?
ask: <can_you> [find|give|offer] {me} [something|another time|a slot] [the following week|on a
  <weekday>|after {apptday}]~
ask: <can_you> [move|switch|slide] [it|that] to [<weekday> <part>|<futureday>|any <part>]~
detail: I [hope|trust] there's no [charge|fee|penalty] for [moving it|the change], I'm
  [writing|giving notice] {2..6} days [ahead|early].

== cancel
topic: the visit I [cancelled|need to cancel]
topic: cancelling {apptday}
fact: [Please cancel|I need to cancel|We must cancel|Go ahead and cancel] {my} [appointment|visit]
  [on|for] <slot>, <excuse>.
fact: (I/We) [won't|can't|will not] [be able to make|make|come to] [the|our] [appointment|visit] on
  <slot>[, {my} {cond} is under control| and don't want to waste your slot|].
fact: [The|That] [{field}|checkup] [appointment|visit] [on|for] {apptday} [isn't needed|can be
  dropped|should come off the books] [any more|now].
ask: <can_you> [take|cross] {me} off [the schedule|{doc}'s list|the books] [for that day|] and
  [confirm|send proof|<reply>]~
detail: [Give|Let] [the spot to somebody|someone on the waiting list have it|a sicker person have
  the time] [if you can|please|].
detail: [I'll|I will] [call|write] [again|myself] [in <month>|after the holidays|when things
  settle] to [rebook|set a new one].

== confirm
topic: the time of [my|the] visit
topic: the {apptday} appointment
fact: [The|My] reminder [text|card|letter] [says|has] {appttime} [but|and] the portal [says|shows]
  <clock> for [the {apptday} visit|{doc}].
fact: I [can't find|lost|misplaced] [the card|the letter|my note] [with|about] the
  [appointment|visit] [with {doc}|in <month>].
fact: [Is|Just checking, is] {my} [visit|appointment] on <slot> at [the {town} office|{clinic}|the
  main building] or [the other|your new] [place|location]?
fact: [Two|2] appointments [show up|are listed] [for {me}|on the portal], {apptday} and
  <futureday>, [which one is real?|I think one is wrong.]
ask: <wonder> which [floor|door|building|suite] [{field} is in|we go to|to use]~

== no show and late
topic: the visit (I/we) missed
topic: being late on {date}
fact: I'm [so|very|terribly] sorry (I/we) missed the {date} [visit|appointment], <excuse>.
fact: [We were|I was] {10..40} minutes late [on {date}|<past>] [and|so] <staff> [turned us
  away|said to rebook|gave the slot away].
fact: [I sat|We waited] in [your|the] waiting room [for|over] {50..115} minutes <past> and [had to
  leave|nobody called {my} name|gave up] [by <clock>|before {doc} was free].
ask: <can_you> [fit|squeeze|get] {me} in [again|this week|before <weekday>]~
ask: <wonder> [whether|if] [that|it] [counts as|goes down as] a no-show [on the record|with
  {clinic}]~

== earlier slot
topic: the [cancellation|waiting] list
topic: something sooner than {apptday}
fact: [The|My] [first|earliest|next] [opening|slot] [with {doc}|with {field}|they gave me] is
  {apptday}, [that's|which is] [far too|way too|<very>] [long|late].
fact: [Please put|Could you put|I'd like to put] {me} on the [waiting|cancellation|short notice]
  list for {doc}, [currently|now] (I'm/{he}'s) [down for|booked on] {apptday}.
fact: [Is there|Any chance of] [anything|something] [sooner|earlier] than [<slot>|{apptday}]?
detail: (I/We) can be [there|in the building|at {clinic}] [within|in] {20..50} minutes [of a call|]
  [any <part>|most days].
ask: <wonder> [whether|if] [a different location|the {town} office|{doc}'s partner] has
  [anything|time] [before then|this month]~

== physical
topic: the yearly physical
topic: {my} annual visit
fact: [It's time for|I'm calling about|We're due for] {my} [yearly|annual]
  [physical|checkup|wellness visit], [last one was|it was] [in <month>|about {12..20} months ago].
fact: [My employer|{insurer}|The county] [needs|wants|gives credit for] a [physical|wellness visit]
  [done|signed] [by|before] [{apptday}|the end of <month>].
ask: <wonder> whether to [fast|skip breakfast|hold the {drug}] [beforehand|that morning|the night
  before]~
ask: <can_you> [book|combine|do] the physical [and|with] [the shots|a flu shot|the ear cleaning] in
  [one visit|the same trip]~

== video visit
topic: the video visit
topic: the telehealth link
fact: [The link|The video|Your video app] for [the {apptday} visit|<slot>] [never came up|didn't
  open|won't load] [on my tablet|on the phone|at all].
fact: [I sat|We sat|I waited] in the virtual waiting room [for|about] {15..50} minutes <past> and
  {doc} never [came on|joined|appeared].
fact: [Could|Can] {my} visit on <slot> be [by video|over the phone|done remotely] [instead|this
  time]?
ask: <can_you> [send|text|email] [the|a new] link [again|to {email}|to {phone}] [before the
  visit|<soon>]~
detail: [The internet|Our wifi|Reception] [out here|in {town}|at work] is [spotty|terrible|only
  good on <weekday>s].

== referral
topic: the {field} referral
topic: getting in with {field}
fact: {doc} [referred|is referring|sent] {me} to {field} [on {date}|<past>|weeks ago] but [nobody
  has called|they have no record|the number is wrong].
fact: {spec}'s office [in {field}|] [says|told me] [the|their] referral [expired|never arrived|has
  to come from {doc}] [so|and] [they can't book|no appointment yet].
fact: [I'd like|We'd like|Is it possible] to [see|be seen by|get in with] [someone in
  {field}|{spec}|a specialist] [about|for] {my} {cond}~
ask: <can_you> [resend|fax|send over] [the referral|my notes|the order] to {spec} [<soon>|at the
  {town} office]~
ask: <wonder> [whether|if] {spec} [takes|is in network with|accepts] {insurer}~

== shots
topic: the shots
topic: a vaccine appointment
fact: [I need|We need|{S} (need/needs)] [a|the] [flu|tetanus|chickenpox|pneumonia|hepatitis B] shot
  [before|by] [{apptday}|<weekday>|a trip in <month>].
fact: [Do you|Does {clinic}] [still|] [have|give|offer] the [flu|travel|RSV] [vaccine|shots] [on a
  walk-in basis|without a visit|on <weekday>s]?
ask: <wonder> [whether|if] {he} can [just|simply] [come by|walk in|see the nurse] [on
  {apptday}|around <clock>]~
detail: {my} [card|booklet|record] [says|shows] the last [one|dose] was [in {2012..2023}|on
  {date}|years ago].

== access
topic: [getting|the way] to the building
topic: the ride to [my|the] appointment
fact: {S} (use/uses) a [walker|wheelchair|cane|scooter] now [and|so] [the steps|parking|the front
  door] at {clinic} [worries me|will be hard|will be a problem] [on {apptday}|].
fact: [The ride service|The van|<kin>] [needs|wants] [the exact address|{2..4} days notice|a
  pick-up time] for [the {apptday} visit|<slot>].
fact: (I/We) will need [an interpreter|a large room|a sign language interpreter|somebody to help at
  the door] on <slot>.
ask: <wonder> how long [the visit|it] [usually|normally] [takes|lasts] so I can [book the ride|plan
  the pick-up|tell <kin>]~
ask: <can_you> [arrange|note|set up] [that|this|help] [in the chart|ahead of time|with <staff>]~

== doctor change
topic: changing doctors
topic: who takes over from {docname}
fact: [I hear|I got a letter that|<kin> told me] {docname} is [leaving|retiring|moving to {town}]
  [in <month>|soon], [so who will see {me} now?|so I need someone new.|and we're worried.]
fact: [I'd prefer|We'd prefer|No offense but I'd like] to [switch|change] from {docname} to [a
  woman doctor|{spec}|somebody nearer {town}] [for|starting with] [the {apptday} visit|the next
  visit].
ask: <can_you> [set up|book] a [first|new patient|get acquainted] visit [with someone good|in
  <month>|on a <weekday>]~

== well child, child
topic: the well visit
topic: the [camp|sports] physical
fact: {S} needs a [sports|camp|school] physical [by|before] [{apptday}|<weekday>|practice starts]
  and the [form needs a signature|coach won't wait].
fact: {my} [yearly|well child|regular] checkup is [due|coming up|overdue], [and|also] [the
  shots|the school form|the eye check] [too|].
fact: [The {school}|Our {school}] [says|sent a note that] {S} can't [come back|join the
  others|attend] until {he} [has been seen|is cleared] by a doctor, [hopefully|ideally] [by|before]
  <weekday>.
ask: <can_you> [see|take] [both|two] kids [back to back|in one visit], {my} [sister|brother] is
  [due|on your books] too~
detail: After [{school}|{2..4}|practice] is [best|easiest], [mornings are|lunchtime is|pickup is]
  [chaos|impossible|a problem].
"""
