"""Test results: waiting for them, reading them, sending them on."""

from __future__ import annotations

NAME = "Test results"

GRAMMAR = """
ask: <can_you> [go over|explain|walk me through] [it|the numbers|what this means] [in plain
  words|on the phone|<soon>]~
ask: <wonder> [whether|if] [this|it|that] [is|looks] [normal|serious|anything to act on] [for
  someone with {my} {cond}|at {my} age|]~
ask: <wonder> when {doc} [will|is going to] [review|look at|comment on] [it|the report|the {test}]~
detail: [The|Their] [normal|reference] range [on the page|printed next to it|they list] is {range}.
detail: [Last|The last] [time|year] [it|the number] was {value2}, so [it's moved|that's a change|it
  isn't far off].
detail: There's a [little|red|yellow] [flag|arrow|exclamation mark|H] [next to|beside|by] [it|two
  of the lines|the number].
detail: I [looked|tried looking] it up [online|last night|at the library] and [scared myself|got
  ten answers|am more confused now].
detail: {S} [had fasted|hadn't fasted|drank coffee beforehand|had a cold that week|took {drug}
  first] [that morning|on {date}|], if [it matters|that matters].
detail: [The tech|The woman|The phlebotomist] at {lab} [needed|took] {2..4} [tries|vials|sticks],
  [nice|very kind] though.
detail: {doc} [didn't leave|didn't write|has not left] a [note|comment] [under|next to|with]
  [it|the report] [yet|].
aside: The [blood work|lab work|{test}] [was|came back] [fine|good|normal] [<past>|in <month>],
  [{doc} said|so that's not it|by the way].
aside: {S} [did|had] the {test} [<past>|already], [results are in the chart|nothing to report].
aside: {doc} [already has|should have|has] the [lab|{test}] [results|report] from
  [{date}|<pastday>].
aside: [The|My] [home|morning] [readings|numbers] [have been|are] [steady|about {118..146} over
  {70..92}|decent] [this month|lately|].
aside: [Still|We are still] waiting on the {test} [from {lab}|], [but no rush|different matter|I'll
  ask separately].
follow: [I still see|The portal still shows] [nothing for|pending on|no comment on] the {test}
  after {3..12} [days|working days].
follow: [Thanks|Thank you] for [the note|explaining|your reply] [about|on] the {test}, [one
  question,|but] <wonder> [when|whether] to [repeat it|do it over|check again]~
follow: [The repeat|A second|The new] {test} [is in|came back|posted]: {value2}, [first
  was|against|it was] {value} [before|on {date}].
follow: {lab} [says|swears] [they|it was] [sent|faxed] [everything|the report] [to you|<past>|on
  {date}], [so it's on your end|please look].

== what does it mean
topic: the {test} result
topic: {my} {test}
fact: <thetest> [came back|is showing|posted] as {value} [and|but] [I don't understand|nobody
  explained|I can't tell] [what that means|if it's bad|how bad that is].
fact: I'm [looking at|reading|staring at] <thetest> [on the portal|in the app|here] and it
  [says|reads|lists] {value}.
fact: [The portal|The app|My phone] [pinged me about|posted|sent] <thetest> at <clock> [<past>|last
  night], {value} [and no explanation|before anyone called|].
fact: {my} {test} [result|report|number] [says|was|is] {value}, [and|so] what does [that|it]
  [mean|say about {my} {cond}]?

== flagged
topic: the flagged {test}
topic: the abnormal {test}
fact: <thetest> is [flagged|marked|listed as] [abnormal|out of range] at {value}, [range|normal is]
  {range}.
fact: [It says|The page says|The report says] {value} [in red|in bold] for <thetest> and [it should
  be|they want] {range}.
fact: {S} (have/has) never had [a bad|an off|a flagged] {test} before and [now|this time] [it's|it
  reads] {value}.
ask: <wonder> [whether|if] [{drug}|the new medicine|dehydration|a cold] could [cause it|explain
  it|throw off the number]~
ask: <wonder> [whether|if] (I need/{he} needs) [a retest|more tests|to come in] or [we just
  wait|diet will do|it can be left]~

== waiting
topic: the {test} result (I'm/we're) waiting on
topic: the {test} still pending
fact: It's been {5..16} days since [the {test}|{my} {test}|they did the {test}] and [the portal|the
  chart|the page] [still says|shows only|says] [pending|in progress|nothing].
fact: {S} [had|went for|did] the {test} [on {date}|at {lab}] and [was told|they promised|{doc}
  said] {2..4} days, [it's been|now it's] {8..15}.
fact: [The results of|Answers on] <thetest> [were|are] [supposed|meant] to be [in|back|ready] by
  <weekday> [and|but] I [see|hear|have] nothing.
ask: <can_you> [chase|call|check with] {lab} [about|for] [it|the report|{mrn}]~
ask: <wonder> [whether|if] [something|the sample|the vial] [got lost|went wrong|was mislabeled]~
detail: I try not to [read into|worry about] [the wait|silence], but my [father|aunt|mother] had
  [bad kidneys|cancer|a scare like this].

== repeat test
topic: repeating the {test}
topic: the next {test}
fact: {doc} [wanted|said to have|mentioned] [another|a repeat] {test} in {2..6} months, [last
  was|the last one was] {value} [on {date}|in <month>].
fact: The {value} from <thetest> was to be [rechecked|repeated|followed up] [by now|this
  month|after changing {drug}].
fact: <wonder> [whether|if] [it's|it is] [time|too soon|necessary] to [redo|repeat|recheck] the
  {test} [after {6..12} weeks on {drug}|]~
ask: <can_you> [put in|send|enter] [the order|a lab order|a standing order] [at|with] {lab}~
ask: <wonder> [whether|if] (I need/{he} needs) to [fast|stop {drug}|skip coffee] [before it|the
  night before|for {8..12} hours]~

== copy
topic: a copy of the {test}
topic: sending the {test} on
fact: {spec} [in {field}|] [needs|wants|is asking for] [a copy of|the report from|the page with]
  <thetest> [before|by] [<weekday>|{apptday}].
fact: [I need|We need|I'd like] [a|the] [printed|paper|PDF] [copy|version] of <thetest> for [our
  records|a second opinion|{spec}|the dentist].
fact: The [download|print|share] button [for|on|under] <thetest> [does nothing|gives an error|shows
  a blank page] [on my computer|].
ask: <can_you> [fax|send|forward] [it|the whole report|everything] to {spec}'s office [in
  {town}|<soon>]~
ask: <can_you> [upload|mail|email] [it|the report|a copy] [to {email}|to the house|here]~

== compare
topic: {test} over time
topic: the change in {my} {test}
fact: {my} {test} went from {value2} [in <month>|last year] to {value} [now|on {date}|this time]
  [even though|although|while] (I take/{he} takes) {drug} [daily|as told].
fact: I [keep|am keeping] a [chart|list|spreadsheet] of {my} {test}: {value2}, then {value}, [up
  and down|no clear trend|what now].
fact: [Good news|Finally], <thetest> is [better|moving the right way], {best} [now|this time]
  [against|from] {worst} [in <month>|last year].
ask: <wonder> [whether|if] [that|this] [change|swing|difference] [is real|means {drug} works|is
  just lab noise]~
ask: <wonder> what [number|level] [we're|you are] [aiming for|hoping to see] [by <month>|with {my}
  {cond}]~

== imaging words, adult
topic: the wording of the scan report
topic: the {scan} report
fact: The [report|radiologist|write-up] [on|of|about] {my} {scan} [mentions|says|talks about]
  "{finding}" and "clinical correlation", which [tells me nothing|frightened me|I can't decode].
fact: {my} {scan} [report|reading] [posted|came in] <past> [with|saying] "{finding}"[ and not much
  else| in capitals|].
fact: [Somebody|{spec}|The ER] [did|ordered] a {scan} <past> and [found|saw|wrote] "{finding}" [by
  chance|on it|in the summary].
ask: <wonder> [whether|if] [that|this finding] needs [another scan|a biopsy|watching|a specialist]~
ask: <can_you> have {doc} [compare|look at] it [with|against] the [old one|{2015..2023}
  films|pictures from {town}]~

== fasting and prep
topic: getting ready for the {test}
topic: instructions for the {test}
fact: {S} (have/has) [the|a] {test} [coming up|booked|scheduled] at {lab} <future> and I
  [lost|never got|can't read] the [instructions|prep sheet|paper].
fact: <wonder> [whether|if] {he} can [have coffee|take {drug}|drink water|take vitamins]
  [before|the morning of] the {test}~
fact: {lab} [turned {me} away|wouldn't do the {test}|sent {me} home] <past> because [there was no
  order|{he} had eaten|the order had expired].
ask: <can_you> [resend|re-enter|fix] the [order|lab slip|code] [so they'll do it|<soon>|before
  <weekday>]~

== home numbers, adult
topic: the readings you asked for
topic: {my} log
fact: [Here are|These are|As promised,] {my} [home|morning|bedtime] [sugars|numbers|readings]:
  {104..133}, {128..168}, {96..127} and {134..196} [on <weekday>|after dinner|on the worst day].
fact: [The|My] [cuff|meter|monitor] [at home|from {pharm}] [reads|shows|gives] {131..168} over
  {76..101}, [while|but] [yours|the one at {clinic}] [said|had] {112..129} over {68..80}.
ask: <wonder> which [number|machine] [to believe|you go by|matters more], [mine|home] or [the
  lab's|yours]~
ask: <can_you> [add|enter|put] [these|them] [in the chart|next to the {test}|where {doc} sees
  them]~

== result and next step
topic: what happens after the {test}
topic: the plan after {value}
fact: <staff> [called|left a voicemail] <past> [about|on] <thetest>, {value}, and [said|told me] to
  [wait for {doc}|change {drug}|do nothing yet].
fact: Now that <thetest> [says|shows|is] {value}, <wonder> [whether|if] {doc} [wants to|plans
  to|will] [change|raise|stop] {drug}~
fact: {S} [saw|read] {value} on <thetest> and [cut out|cut back on|went easy on] [salt|sugar|fried
  food|red meat] [without asking|right away].
ask: <wonder> what the [next step|plan|follow-up] is [now|from here|after that number]~

== wrong or missing
topic: a mix-up with the lab
topic: a result [that isn't mine|in the wrong chart]
fact: [I think|It looks like] [someone else's|another person's|a stranger's] {test} [landed|was
  filed|is] in {my} chart, [dated|from] {date}, {he} never had one.
fact: [Only|Just] [half|part|one page] of <thetest> [is|shows] [here|in the portal], the
  [{test2}|second page|rest] is [missing|nowhere].
fact: {lab} [says|claims] [the|their] [sample|tube] [clotted|leaked|was too small], so <thetest>
  [couldn't be run|has no result|must be redone].
ask: <can_you> [find|track down|correct] [the rest|it|the record] [for {name}|<soon>|under {mrn}]~

== child results, child
topic: {my} {test}
topic: the [swab|blood draw]
fact: {my} [throat swab|blood draw|{test}] from {date} [isn't|still isn't] [on the portal|back],
  and the {school} [wants|is asking for] [proof|a note] [by <weekday>|].
fact: The {test} for {S} is [up|listed|posted], {value}, and I [panicked|have questions|don't know
  the scale for kids].
ask: <wonder> [whether|if] [the baby|{my} brother|the whole house] should be [tested|checked]
  [too|as well]~
"""
