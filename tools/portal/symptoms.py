"""Symptoms: what hurts, since when, and whether to come in."""

from __future__ import annotations

NAME = "Symptoms"

GRAMMAR = """
ask: <wonder> [whether|if] {he} should [come in|be seen|go to urgent care|see somebody] or [just
  rest|watch it|wait it out]~
ask: <wonder> what [else|more] (I/we) can [do|try|take] [at home|for it|until <weekday>]~
ask: <wonder> [whether|if] [this|it|that] [sounds|is] [normal|serious|like something going around]
  [with {my} {cond}|]~
ask: <wonder> what [signs|changes] [to watch for|should send us to the ER|mean it's worse]~
detail: [No|There's been no] fever[, chills|, cough|] [or|and no] [vomiting|rash|swelling] [so
  far|that I've noticed|].
detail: [Temperature|Temp] was {99..102}.{1..8} [this morning|<past>|at <clock>].
detail: [It's|The whole thing is] [worse|worst] [at night|in the morning|after meals|in the cold]
  and [eases|lets up] [by noon|sitting up|with heat].
detail: {S} [took|tried] [ibuprofen|acetaminophen|an ice pack|a heating pad|ginger tea]
  [<past>|every {4..8} hours|twice], [it barely helped|no difference|helped for an hour].
detail: [Nobody else|<kin>|Half the house] [is|has been|was] sick [at home|here|this week][ too|].
detail: {S} slept [maybe|about] {2..5} hours [last night|<past>] [with it|because of it|].
detail: [Pain is|I'd call it|On a bad moment it's] {3..8} out of 10[, {1..2} at rest|, worse on
  stairs|].
detail: [The same thing|This] happened [in <month>|once in {2015..2023}|years ago] but [went
  away|was milder|passed by itself].
detail: (I'm/{He}'s) [eating|drinking] [fine|a little|hardly anything] [and|but] [tired|cranky|not
  {self}] [all day|by <daypart>].
aside: [I'm feeling|We're feeling|Feeling] [much better|a little better|no worse] than
  [<pastday>|last week|before], [just so you know|thankfully].
aside: The [cough|back pain|headache] from [last month|{date}] [is gone|cleared up|is mostly gone].
aside: (I have/{He} has) [a bit of a|some|a little] [cold|stiffness|heartburn] [today|this week]
  but [nothing serious|that's not why I write|it'll pass].
aside: [No|There are no] new [symptoms|aches|complaints] [since <pastday>|to report|on this end].
aside: [The|That] [rash|sore knee|dizziness] [comes and goes|is about the same], [we can talk about
  it then|not urgent].
follow: [It's|The pain is|Things are] [no better|worse|a little better] [since I wrote|than
  before|today] and [now|as of <pastday>] there's [swelling|a fever|a new spot|more of it] [too|].
follow: [I did|We did|We tried] what you [said|suggested], [rest|fluids|the cream|ice] for {2..5}
  days, and [it's still there|no change|it came back].
follow: [Thanks|Thank you] for [calling|the advice], [the worst is over|it's easing], but <wonder>
  how long [it|this] [should take|usually takes|tends to last]~

== cough
topic: the cough
topic: this chest cold
fact: {S} (have/has) had [a|this] [dry|barking|wet|hacking|tickly] cough <since> that [won't let
  up|keeps us awake|is moving into the chest].
fact: [It started|This began] as a [runny nose|sore throat|cold] <past> and now {S} (cough/coughs)
  up [yellow|green|clear] [stuff|phlegm] [every <daypart>|].
fact: [Every time|Whenever] {S} (lie/lies) down there's a [wheeze|rattle|whistle], [mostly|worse]
  [on the left|at night|after stairs].
detail: [The inhaler|Cough syrup|Honey|Steam] [isn't|doesn't seem to be] [touching it|doing much],
  {2..6} times a day.
ask: <wonder> [whether|if] (I need/{he} needs) [an antibiotic|a chest x-ray|an inhaler|somebody to
  listen to the lungs]~

== back, adult
topic: {my} back
topic: the back pain
fact: {S} [bent down|reached|twisted] [for|to get] [a laundry basket|the groceries|a suitcase|a
  sack of soil] <past> and {my} [lower|whole] back [locked|seized up|gave out].
fact: {my} [lower back|left hip|right side] has been [killing me|bad|aching] <since>,
  [shooting|running] down the leg [to the knee|to the toes|].
fact: Getting [out of bed|up from a chair|in the car] takes {me} {5..15} minutes because {my} back
  [spasms|is so stiff|won't straighten].
ask: <wonder> [whether|if] [physical therapy|a muscle relaxer|an MRI|bed rest] [is the way to
  go|makes sense|would help]~
detail: [No|There's no] [numbness|weakness|trouble with the bladder], only [the pain|pins and
  needles <past>].

== rash
topic: the rash
topic: the spots
fact: {S} (have/has) a [itchy|red|bumpy|scaly|blistery] rash [on|across] {my}
  [arms|knees|chest|neck|belly|ankles] <since>.
fact: [Some|These] [hives|welts|spots|red rings] [came up|appeared|broke out] on {my}
  [arms|legs|shoulders|neck] <past>, [now everywhere|spreading].
detail: [We|I] [changed|switched] [detergent|soap|dog food] [in <month>|<past>], [otherwise|apart
  from that] [nothing new|no new foods].
detail: [Hydrocortisone|Calamine|Oatmeal baths|Coconut oil] [took the edge off|did nothing|burned].
ask: <can_you> look at the [photo|picture] I [attached|sent] and [say|tell me] [what it is|if it's
  contagious]~

== dizzy
topic: the dizzy spells
topic: feeling faint
fact: {S} (have/has) been [dizzy|lightheaded|wobbly] [when standing up|getting out of bed|after
  meals] [<since>|lately], [grabbed the counter|sat down hard|had to lie on the floor] <past>.
fact: [The room|Everything] [spun|tilted|went gray] for {10..50} seconds [<past>|at <clock> today]
  and {S} nearly [fell|dropped a cup|got sick].
detail: [Blood pressure|The cuff] [showed|said|read] {88..104} over {52..64} [right
  after|afterwards|<past>].
ask: <wonder> [whether|if] [{drug}|the heat|an ear thing] [could be|is] [behind it|to blame|doing
  this]~

== headache
topic: the headaches
topic: {my} head
fact: {S} (have/has) had [a|the same] [pounding|dull|stabbing|tight] headache [behind the eyes|on
  one side|at the back] <since>.
fact: {my} [headaches|migraines] [come|start|hit] [around <clock>|most <daypart>s|{2..5} times a
  week] now, with [flashing lights|nausea|a stiff neck].
detail: [Bright light|Skipping lunch|Paint smell|Bad sleep] sets [it|them] off.
ask: <wonder> [whether|if] {he} can [take|have] [more|another] [ibuprofen|naproxen|acetaminophen]
  [on those days|for it|with {drug}]~

== stomach
topic: {my} stomach
topic: the belly pain
fact: {S} (have/has) been [throwing up|running to the bathroom|bloated|cramping] <since>,
  [about|maybe] {3..9} times a day.
fact: There's [a burning|a gnawing|a sharp] [pain|feeling] in {my} [upper belly|stomach|right side]
  [an hour after|before|with] [meals|greasy food|breakfast].
detail: [Toast|Broth|Bananas|Crackers] and [water|flat soda|tea] [stay down|are all {he} can
  manage].
detail: [No blood|A little blood|Some mucus] [that I saw|on the paper|<past>].
ask: <wonder> [whether|if] [it's a bug|it's the gallbladder|bad food did it], we had
  [leftover|warm] [chicken|oysters|egg salad] [<past>|at <kin>'s]~

== joint
topic: {my} [knee|shoulder]
topic: the sore joint
fact: {my} [right|left] [knee|shoulder|thumb|hip|elbow] [swelled|puffed up|locked|started aching]
  [<past>|over the weekend] and [won't bend|clicks|is hot to the touch].
fact: [Stairs are|The bathtub is|Opening a jar is|Turning a key is] [murder|almost impossible] with
  {my} [bad knee|sore hands|hip|shoulder] [lately|these days|this week].
detail: (I {hobby}/{He} likes to keep busy), [so|and] [this slows things down|it matters|the timing
  is bad].
ask: <wonder> [whether|if] [a shot|a brace|an x-ray|rest] [is next|would help|is worth it]~

== heart, adult
topic: the fluttering
topic: {my} heartbeat
fact: {my} heart [skips|flutters|races|pounds] for {2..15} minutes, {2..6} times [a day|this week|a
  night].
fact: [<past>|Around <clock> today] there [was|came] a [tightness|pressure|flutter] in {my} chest
  [climbing stairs|carrying groceries|watching TV], [gone in|it passed after] {3..12} minutes.
detail: [My watch|The cuff|<kin>] [counted|showed|said] {104..148} beats a minute[ at rest|].
ask: <wonder> [whether|if] [coffee|stress|{drug}|thyroid] [could|might] [do that|bring it on]~

== sleep, adult
topic: not sleeping
topic: {my} nights
fact: {S} (have/has) been [awake|up] at {1..4}:{10..55} [every night|most nights] <since> with [a
  racing mind|sweats|restless legs|nothing to do about it].
fact: [<kin> says|We noticed] {S} (snore/snores) [like a train|loudly|and gasps] and by [noon|2
  o'clock] (I'm/{he}'s) [nodding off|dead tired].
detail: [Coffee|Screen time|Napping] is [cut out|limited] [after noon|since <month>],
  [chamomile|melatonin|a fan] [did little|helps some].
ask: <wonder> [whether|if] a sleep [study|clinic|pill] [makes sense|is worth it|comes next]~

== tired, adult
topic: being so tired
topic: the fatigue
fact: {S} (have/has) been [worn out|exhausted|dragging] <since>, can't [climb the stairs|walk to
  the mailbox|get through a shift] without [stopping|a nap|puffing].
fact: {S} (have/has) lost {6..18} pounds [since <month>|without trying|in {2..4} months] and [food
  has no taste|everything feels heavy|the cold bites] [all the time|by <daypart>|].
detail: {my} hair is [falling out|thinner] and [the cold|getting up] [is worse|is hard].
ask: <wonder> [whether|if] [it's the {cond}|{drug} does that|age just does this]~

== urinary, adult
topic: the burning
topic: {my} bladder
fact: It has [burned|stung|hurt] when (I pee/{he} pees) <since> and there's the urge every {15..40}
  minutes[, cloudy too|, some pink|].
fact: {S} (have/has) been up {3..6} times a night to [go|pee] <since>, [barely anything comes|a
  weak stream|with an ache low down].
detail: [Cranberry juice|Drinking lots|The heating pad] [isn't helping|eased it|made it worse].
ask: <wonder> [whether|if] (I/we) can [drop off|bring] a sample [<soon>|at {lab}|without a visit]~

== swelling, adult
topic: the swelling
topic: {my} ankles
fact: {my} [ankles|feet|calves|legs] have been [swollen|puffy|tight] <since>, [socks leave|shoes
  leave|a thumb leaves] [deep marks|a dent].
fact: {S} gained {4..11} pounds in {3..8} days and {my} [rings|shoes|pants] [won't|don't] [fit|go
  on].
detail: [Short|A little short] of breath [on stairs|lying flat|], {2..3} pillows [now|at night].
ask: <wonder> [whether|if] [salt|{drug}|the heat|standing all day] [is to blame|could do it]~

== injury
topic: the fall
topic: {my} [ankle|wrist]
fact: {S} [slipped|tripped|fell] [on ice|off a step|over the dog|at the pool|in the shower] <past>
  and [landed on|twisted|banged] {my} [wrist|ankle|hip|tailbone|elbow].
fact: {my} [wrist|ankle|big toe|little finger] [turned|is] [purple|black and blue|twice its size]
  after a [fall|bad step|car door] <past>.
detail: {S} can [put weight on it|wiggle everything|move it some] but [stairs hurt|gripping
  hurts|shoes won't go on].
ask: <wonder> [whether|if] [it needs|we need] [an x-ray|a splint|a stitch] or [just ice|time]~

== wound
topic: the incision
topic: where they operated
fact: The [incision|wound|spot] from [the {date} procedure|surgery|the biopsy] [is|looks]
  [red|warm|puffy|oozy] [on one edge|<since>|around the stitches].
fact: It's been {6..19} days since [the procedure|{spec} operated|the stitches] and [there's|I
  notice] [a smell|yellow drainage|a hard lump|more pain].
detail: [I change|<family> changes] the [bandage|dressing] [every <daypart>|{2..3} times a day]
  [like they showed us|with the ointment].
ask: <wonder> [whether|if] [showering|swimming|the gym] [is ok|can be tried] [yet|before
  <weekday>]~

== mood, adult
topic: how (I've/{he}'s) been [feeling|coping]
topic: {my} nerves
fact: {S} (have/has) [felt|been] [low|on edge|weepy|numb] <since>, ever since [the layoff|a death
  in the family|moving to {town}|the divorce].
fact: [Panic attacks|Crying spells] [again|are back], {2..6} [this week|since <weekday>], [heart
  racing|shaking|hard to breathe] [in the car|at the store|at work].
detail: [No thoughts of self harm|Nothing dangerous|Safe at home], [just|only] [flat|tired of
  it|not {self}].
ask: <wonder> [whether|if] [counseling|talking to someone|a change of pills] [would help|is
  possible] [<soon>|]~

== child fever, child
topic: {my} fever
topic: the ear
fact: {S} has had a fever of {101..103}.{1..9} <since>, [pulling|tugging] at [one ear|the left
  ear|both ears], [not eating|cranky|glassy eyed].
fact: {S} [threw up|broke out in spots|came home from {school} with pink eye|woke up with croup]
  <past> and now [won't drink|is clingy|sounds like a seal].
detail: [{5..7} mL|A dose] of [acetaminophen|ibuprofen] [brings it down|helps] for [about|maybe]
  {2..4} hours.
detail: [Bathroom trips|Naps|Meals] are [normal|fewer than usual|down to {2..4}] today.
ask: <wonder> when {he} can [safely|] go back to [{school}|swimming|practice]~
"""
