"""Prescriptions: refills, pharmacies, doses, approvals, shortages."""

from __future__ import annotations

NAME = "Prescriptions"

GRAMMAR = """
ask: <can_you> [send|call|phone] [it|this one|that] [in|over] to {pharm} <soon>~
ask: <can_you> [check|see|find out] [whether|if] {pharm} [got|received|has] [it|the script|your
  fax]~
ask: <wonder> [who|which of you] [handles|signs|approves] [this|these|medication requests] [now|at
  present|when {doc} is away]~
detail: {pharm} [closes|shuts] at {5..9} [on <weekday>s|every <weekday>] [so|and] I [need to|have
  to|want to] [plan|get there early].
detail: [It's|This is] the only [thing|one|medicine] that [has ever worked|works|helps] for {my}
  {cond}.
detail: (I take/{He} takes) [it|that one] [with breakfast|at bedtime|right after supper|twice a
  day|every other day].
detail: [The|My] [old|last] bottle [says|shows] [no|zero|0] refills [after|past] {date}.
detail: [Last month|Last time|In <month>] [they|{pharm}|the pharmacist] [only gave|shorted|handed]
  me {8..28} {units}.
detail: {doc} [changed|adjusted|went up on] the dose [in <month>|<past>|at the {date} visit],
  [now|so it's] {dose}.
detail: [I use|We use|We switched to] {pharm} now, [the one|the location] [in|near|over by] {town}.
detail: I [set|have] an alarm [on my phone|for it], [so|and] [no doses have been|not one has been]
  missed.
aside: I [picked up|already got|just filled] <med> [at {pharm}|<past>|no problem], [so that's
  done|so no refill needed].
aside: {S} (am/is) still [taking|on] <med> [every <daypart>|as directed|same dose|with no trouble].
aside: {pharm} [has me|put me] on auto refill [now|finally], [so skip that|so that's handled].
aside: [Nothing|No changes] [needed|to report] on the [medication|pill|prescription] side [this
  time|for now|].
aside: {S} started the new {drug} [<past>|like {doc} said], [so far so good|no complaints].
aside: [I'd|I would] [rather not|prefer not to] add [another|a new] [pill|prescription] [to the
  pile|on top of {drug}|].
follow: {pharm} [still|] [says|claims|insists] [nothing|no prescription|no order] [came|was
  sent|has arrived] [from you|from your office|as of today].
follow: [I have|There are] {2..6} {units} left [now|as of this morning|in all], [and|so] [this
  can't wait|it's getting tight].
follow: [Thanks|Thank you] for [sending|handling] <med>, [but|only] they [filled|gave me] the
  [wrong strength|old dose|wrong quantity].
follow: [The|Your] nurse [said|wrote|promised] [it|the refill] would [be there|go out] by
  [<weekday>|<pastday>] [and|but] [nothing yet|no luck].

== refill
topic: the {drug} refill
topic: refilling {drug}
fact: {S} (have/has) [only|just|about] {2..9} {units} of <meds> [left|to go on|remaining][ and no
  refills|, enough to <weekday>|].
fact: I'm [down to|nearly at|on] the last [week|few days|bottle|{3..8} days] of <meds>.
fact: [It's|It is] time [again|already] for [a refill|another round|a new bottle] of <meds>[,
  {30..90} {units}|].
fact: [Need|Requesting|I need|This is for] a [refill|renewal] of <meds>[, {30..90} count|]
  [at|through|from] {pharm}.
fact: <med> [runs out|will be gone] [on <weekday>|<future>|this weekend] and the [label|refill
  line|app] [says|shows] no [refills|more fills].
fact: {pharm} [asked|faxed you] for [a refill|a renewal] of <meds> [<past>|{2..3} times] and [heard
  nothing|got no answer|was ignored].
ask: <can_you> [refill|renew|reorder] [it|<meds>|that] [for {30..90} days|with a few
  refills|<soon>]~
ask: <can_you> [put|add] [{2..5}|some|extra] refills on [it|the next one] so I [don't have
  to|needn't] [ask|write] [every month|each time]~
ask: <can_you> make [it|this one] a [60|90] day supply [this time|from now on|instead of 30]~

== travel supply
topic: an early fill before [my|the] trip
topic: the vacation supply of {drug}
fact: [We|I] [fly|leave|drive] [out|off] <future> for {2..7} weeks [to see <kin>|with
  family|overseas] and <meds> [won't last|will run out midway].
fact: [I'll|I will] be [away|traveling|out of state] [from|starting] <futureday> and [need|want]
  [enough|extra] {drug} [to cover|for] {16..60} days.
fact: {pharm} [won't|refuses to|can't] fill <meds> [early|ahead of time] without [a note|a vacation
  override|word] from {doc}[, we travel <future>|].
ask: <can_you> [tell|call|message] {pharm} [it's|that it's] [ok|fine|approved] to fill [early|ahead
  of <weekday>]~
ask: <can_you> [authorize|write|approve] a [one time|vacation|travel] supply of {drug} <soon>~
detail: I'd [rather not|hate to] [skip|stretch|ration] {drug} [on a ship|in another country|at
  <kin>'s house].

== lost bottle
topic: the lost {drug}
topic: replacing {drug}
fact: [This is embarrassing but|I feel silly, but|Long story,] [the dog|the movers|the toddler]
  [got into|lost|ruined] the [whole|new] [supply|refill] of <meds> <past>.
fact: I [left|forgot] <meds> [in a hotel|at <kin>'s place|on the train|in a rental car] <past>
  [and|so] [it's gone|they can't find it].
fact: [Somehow|I must have] [knocked|dropped|spilled] <meds> [down the sink|in the bath|behind the
  stove] <past>, {8..40} {units} [ruined|gone].
ask: <can_you> [replace|reissue|resend] [it|the prescription] even though [it's early|the insurance
  may fuss|it was just filled]~
detail: {insurer} [says|told me] they [cover|allow] one lost [fill|bottle] [a|per] year if
  [you|{doc}] [call|signs off|agrees].

== pharmacy switch
topic: moving {drug} to {pharm}
topic: changing pharmacies
fact: [I've|We've] [changed|switched] [from {pharm2}|pharmacies] to {pharm} and <meds> didn't
  [come|transfer|carry] over.
fact: {pharm2} [closed|is closing|dropped my plan] [in <month>|for good|], so [everything|all the
  scripts|<meds>] [has to|should|must] go to {pharm}.
fact: [You sent|Someone sent|The office sent] <meds> to {pharm2} [again|by mistake|<past>], [we
  use|I use|it should be] {pharm}.
ask: <can_you> [resend|redirect|move] [it|<meds>|the script] to {pharm} and [take {pharm2}
  off|delete the old one|update the chart]~
ask: <can_you> make {pharm} [my|our|the] [default|main|only] [pharmacy|one on file] [from now
  on|going forward]~

== prior authorization
topic: the approval for {drug}
topic: the prior auth on {drug}
fact: {pharm} [says|told me] {insurer} [wants|needs|requires] prior [authorization|approval]
  [for|before they fill] <meds>.
fact: {insurer} [denied|rejected|kicked back] <meds> [<past>|again] [saying|because] {he} must
  [try|fail on] {drug2} first.
fact: [The|My] approval for <meds> [expired|ran out] [<past>|at the end of <month>] and the
  [pharmacist|system] [is stuck|won't budge].
ask: <can_you> [send|submit|fax] [the form|the paperwork|whatever they need] to {insurer} <soon>~
ask: <can_you> [appeal|fight] [it|this|that] or [pick|suggest] [something|a drug] they [do
  cover|will pay for]~
detail: [The|Their] [fax|form] [went|was sent] to your office [<past>|on {date}], [reference|case]
  {claim}.
detail: {S} already [tried|took] {drug2} [in {2014..2023}|years ago] and [it did nothing|got hives
  from it|had to quit].

== dose question
topic: how to take {drug}
topic: the {drug} dose
fact: The [label|box|printout] [on|for] <meds> says [once|one] a day but [{doc} said|I remember|my
  notes say] [twice|half|every other day].
fact: {S} [missed|skipped|forgot] {2..4} [days|doses] of <meds> [<past>|while traveling|over the
  weekend] and <wonder> whether to [double up|catch up|start over]~
fact: [By accident|Not thinking,|Half asleep,] {S} took [a double dose|twice the amount|too much]
  of <meds> [<past>|this morning|at <clock>].
fact: <wonder> [whether|if] <meds> [should|has to|can] be taken [with food|at night|apart from
  coffee|with {drug2}]~
ask: <can_you> [spell out|confirm|write down] [the right dose|exactly how much|the schedule] [for
  {drug}|to follow]~
ask: <wonder> what {he} should [do|take] [tonight|tomorrow <daypart>|now]~

== mix with over the counter, adult
topic: mixing {drug} with something else
topic: what is safe with {drug}
fact: {S} (want/wants) to [take|try|start] [melatonin|ibuprofen|a cold tablet|fish
  oil|turmeric|magnesium] [along with|on top of|while on] <meds>.
fact: [<kin>|The dentist|The store clerk] [gave me|recommended|swears by] [an antibiotic|some cough
  syrup|a sleep aid|St John's wort] and {S} (am/is) [on|already taking] <meds>.
ask: <wonder> [whether|if] [that|the combination] [is safe|clashes|is a bad idea] with {drug2} [as
  well|too]~
ask: <can_you> [look up|check|ask the pharmacist about] [interactions|the mix] [before I
  start|first]~
detail: The [box|leaflet|package] [warns of|says something about] [bleeding|drowsiness|kidney
  trouble|grapefruit].

== side effect of a drug
topic: changing {drug} to something else
topic: coming off {drug}
fact: <meds> [makes|has made|is making] {me} [drowsy|nauseous|jittery|constipated|foggy] [since the
  dose went up|by <daypart>|every day].
fact: Ever since [the|that] [switch|change] to <meds> {S} (have/has) had [a dry cough|vivid
  dreams|swollen ankles|no appetite].
fact: {S} [stopped|quit] <meds> [<past>|without asking|cold turkey] [because it upset {my}
  stomach|after reading the leaflet|after a dizzy week].
ask: <wonder> [whether|if] there's [another|a different|a gentler] [medicine|brand|version] [for
  {my} {cond}|in place of {drug}]~
ask: <can_you> [lower|cut|change] the dose [to half|back to what it was|of {drug}]~
detail: {drug2} [didn't|never] [did|do] that [to {me}|before].

== looks different
topic: the new look of {drug}
topic: the generic {drug}
fact: The [new|latest] refill of <meds> [looks|is] [white|yellow|smaller|oval|darker] [instead
  of|and not] [blue|round|the usual|big].
fact: {pharm} [switched|changed] <meds> to [a generic|another maker|a different brand] [without
  asking|<past>] [and|now] [it doesn't feel the same|the markings are off].
ask: <wonder> [whether|if] this is [really|still] the same [medicine|strength|thing]~
ask: <can_you> [write|mark] [brand only|no substitution] on [the next one|the {drug}]~

== out of stock
topic: finding {drug} in stock
topic: the {drug} shortage
fact: {pharm} [is out of|can't get|has run out of] <meds> until [<weekday>|<futureday>|further
  notice], [nationwide shortage|backorder|something about a supplier].
fact: [I've|We've] called {3..9} [pharmacies|places] [around|near] {town} and [none|nobody|only
  {pharm2}] has <meds>.
ask: <can_you> [move|send|transfer] [it|the script] to {pharm2}, they [have|had] {12..60} {units}
  [as of this morning|when I called]~
ask: <wonder> [whether|if] {drug2} or [another|some other] [strength|form] [would do|could work]
  [for now|until then]~
detail: (I have/{He} has) [enough|maybe enough] for {2..6} [days|more days|doses].

== waiting at the pharmacy
topic: the {drug} that never got to the pharmacy
topic: [my|the] pickup at {pharm}
fact: I [stood|waited|sat] at {pharm} [for|about] {20..55} minutes <past> and they [have|had]
  [nothing for {name}|no record from {doc}|no sign of {drug}].
fact: {doc} [said|promised] at the {date} visit [there'd be|to send] {drug} [at|to] {pharm}, [it's
  not there|nothing has come].
fact: The text from {pharm} [says|said] <meds> [was cancelled|is on hold|needs a doctor's okay].
ask: <can_you> [send|try sending|fax] [it|{drug}] again [and|then] [confirm|text me|tell me] when
  [it's there|they have it]~

== supplies, adult
topic: {condadj} supplies
topic: the supply order
fact: {S} (need/needs) a [new|fresh] [script|prescription|order] for [test strips|pen needles|a
  spacer|compression stockings|a pill splitter|a nebulizer mask] to go [with|alongside] <meds>.
fact: {insurer} [switched|changed] [which|the] [meter|sensor|brace|brand] they [cover|pay for], so
  [the|my] [script|order] [doesn't match|is useless|needs redoing].
ask: <can_you> [write|sign|send] [the order|one|a new script] for [50|100|200|300] [a month|every
  90 days] to {pharm}~
detail: (I go/{He} goes) through [about|roughly|maybe] {2..9} [a day|a week], [more|even more]
  [when sick|in summer|since <month>].

== school form, child
topic: the {school} medication form
topic: {drug} at {school}
fact: The {school} [nurse|office|director] [won't|can't] give {me} <meds> without [a signed form|a
  doctor's note|the original label].
fact: {S} [spits out|hates|fights] <meds>, [so|and] [every <daypart> is a battle|we waste half of
  it|I bribe with stickers].
fact: {my} weight [went up|changed], {20..44} pounds now, and <wonder> [whether|if] <meds> [still
  fits|is still right|needs adjusting]~
ask: <can_you> [sign|fill out] the [form|permission slip|action plan] [and fax it|] to the {school}
  [by|before] <weekday>~
ask: <wonder> [whether|if] {drug} comes in [a chewable|another flavor|a smaller dose|another form]~
"""
