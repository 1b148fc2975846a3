"""Billing: charges, claims, coverage, payments."""

from __future__ import annotations

NAME = "Billing"

GRAMMAR = """
ask: <can_you> [look into|review|check] [it|this|the account|invoice {invoice}] [and|then] [correct
  it|<reply>|send a new statement]~
ask: <can_you> [tell|show|explain to] me [where it stands|what is still owed|how you got there|what
  was billed] [for {date}|in writing|<soon>]~
ask: <wonder> who [to talk to|I should call|to ask] about [the account|billing|this] [there|at
  {clinic}]~
ask: <can_you> [hold|stop|pause] [the|any] [late fee|reminders|collections] [until|while] [this
  gets sorted|{insurer} answers|we figure it out]~
detail: [The|Their] statement is [dated|from] {date}, [number|invoice|account] {invoice}.
detail: {insurer} [says|told me|swears] [it's|this is] [coded wrong|on your end|all paid],
  [claim|reference] {claim}.
detail: I [paid|already paid|sent] ${amount2} [by card|by check|at the desk] [on {date}|<past>],
  [check number {1031..4980}|I have the receipt|it cleared].
detail: [We're|I'm] on [a fixed income|one paycheck|disability] [right now|until <month>|],
  [so|and] [every bill|any surprise|even ${amount2}] [matters|is felt|hurts].
detail: I [was|sat] on hold with {insurer} for {25..95} minutes [<past>|] [and they|only to] [blame
  you|say call the clinic|get cut off].
detail: [My|The] [member|policy] [number|ID] [is|on the card is] {member}, [same as before|new
  since <month>|group {20..89}].
detail: [Nobody|No one] [mentioned|warned us about] [a cost|any charge] [at|during] <visit>.
aside: [The copay|The bill] [from|for] {date} [is paid|went through|is settled], [thanks|no
  question there].
aside: [I know|I hope] {insurer} [covers|pays for] [this|it|most of it][, they did in <month>|,
  fingers crossed|].
aside: [My|Our] insurance [is still|hasn't changed from|stays] {insurer}[, same card|, in case you
  ask|].
aside: I [paid|settled] the ${amount2} [online|<past>], [so that's off my list|so we're square].
aside: [I know|Yes,] [I still owe|there's still] ${amount2} on [the account|my bill], [it's
  coming|payday is <weekday>].
follow: [I got|We got|Here comes] [another|a second|yet another] [statement|notice|bill] for [the
  same|that] ${amount} [<past>|today|in the mail].
follow: {insurer} [finally answered|wrote back|called], [they|now they] [need|want] [a corrected
  claim|your notes|the right code] [by <weekday>|for {claim}|].
follow: [Thanks|Thank you] for [checking|adjusting it], [but|however] the [portal|website] still
  [says|shows] ${amount} [due|owed|past due].
follow: [Billing|Someone in billing|Your billing person] [was going to|said they'd] [call|refund
  it|fix it] by [<weekday>|<pastday>], [nothing|no word] [yet|so far].

== unknown charge
topic: the ${amount} charge
topic: invoice {invoice}
fact: [I got|We received|There's|I have] a [bill|statement|charge] for ${amount} [from
  {clinic}|from your office|dated {date}] that I [don't recognize|can't make sense of|have no idea
  about].
fact: ${amount} for [<visit>|a {20..30} minute visit|one {test}|talking on the phone]? [That can't
  be right|I nearly fell over|Last year it was ${amount2}].
fact: The [statement|invoice|letter] [lists|shows|has] a [facility|lab|"level 4"|supply]
  [fee|charge] of ${amount} for {date}.
ask: <can_you> [tell|show|explain to] me what <sum> is [for|about|made of]~
ask: <can_you> [send|mail|print] [an itemized|a line by line|a detailed] [bill|statement|list] [to
  me|here|for {date}]~

== billed twice
topic: being billed twice
topic: the duplicate ${amount}
fact: [I was|We were|My card was] [charged|billed] ${amount} [twice|two times] for [the same
  visit|<visit>|{date}].
fact: [I see|There are] two [charges|payments|withdrawals] of ${amount}, {date} and <pastday>, [on
  my card|at the bank|from {clinic}].
fact: I [already|definitely] paid [the|that] ${amount} [at the front desk|by phone|online] on
  {date} and [now there's another bill|it shows as owed|still get reminders].
ask: <can_you> [refund|reverse|credit back] [one of them|the extra one|${amount}] [to my
  card|<soon>|to the account]~

== denied
topic: the denied claim
topic: what {insurer} refused
fact: {insurer} [denied|rejected|refused] [the claim|coverage|payment] for [<visit>|the
  {test}|{field}] [saying|because] [it wasn't|it's not] [authorized|medically necessary|in
  network|coded right].
fact: [My|The] [letter|EOB|explanation of benefits] from {insurer} [says|shows] [zero|$0|not
  covered] for {date}, [leaving me|so you billed me] ${amount}.
ask: <can_you> [resubmit|appeal|recode] [it|claim {claim}|the claim] [as preventive|with the right
  code|with the referral attached]~
ask: <wonder> [whether|if] [your office|{doc}|billing] will [write|send] [a letter|notes] to
  {insurer}~
detail: [The|Their] appeal [deadline|window] [is|ends|closes] [{apptday}|<futureday>|in {10..30}
  days].

== copay
topic: the copay
topic: what (I/we) owe at check-in
fact: [The desk|<staff>|Your kiosk] [charged|took] [a|] ${amount2} [copay|at check-in] <past>
  [but|when] [the card says|{insurer} says|it's always been] ${15..24}.
fact: <wonder> why [the copay|what I owe] [went|jumped] from ${12..24} to ${amount2} [this
  year|since <month>|for {field}]~
fact: [My plan|{insurer}] has [no copay|a zero copay] for [preventive|wellness|well] visits,
  [yet|but] [I was charged|they took] ${amount2} on {date}.
ask: <can_you> [refund|credit|apply] [the difference|the ${amount2}] [to the next bill|to my
  card|toward invoice {invoice}]~

== payment plan
topic: a payment plan
topic: paying off ${amount}
fact: [I can't|We can't|There is no way I can] pay [the whole|all of the|the full] ${amount} [at
  once|by {apptday}|this month], [hours were cut|rent comes first|<excuse>].
fact: [I'd like|We want|Is there a way] to [set up|start|arrange] [a payment plan|monthly
  payments|installments] for the ${amount}, [maybe|say] ${25..90} a month~
fact: [I've been|We've been] paying ${25..80} a month on [invoice {invoice}|the ${amount}|the
  balance] and [the last one|<month>] [didn't post|isn't showing|was late].
ask: <wonder> [whether|if] {clinic} has [financial help|a hardship program|charity care|a discount
  for cash]~
ask: <can_you> [mail|send] [the form|an application|the paperwork] [for assistance|to
  {town}|<soon>]~

== new insurance
topic: the new insurance
topic: switching to {insurer}
fact: [Our|My] insurance [changed|switched|has changed] to {insurer} [on the first|on {date}|in
  <month>], [member|ID] {member}.
fact: [You billed|The office billed|Somebody billed] [my old|the old|the wrong] [plan|insurance]
  for <visit>, [it should be|we have] {insurer} [now|since <month>].
fact: I [uploaded|sent|showed] the [new|{insurer}] card [<past>|at check-in|twice] but the
  [bill|statement|system] still [lists|uses] the old [one|plan].
ask: <can_you> [rebill|resubmit|rerun] [{date}|the visit|claim {claim}] [under|through] [the new
  plan|{insurer}]~
ask: <wonder> [whether|if] {doc} [is|will still be] in network [with|for] {insurer}~

== collections
topic: the collections letter
topic: the past due notice
fact: [A collection agency|Some collector|A debt company] [called|wrote] <past>
  [about|over|demanding] ${amount} [from {clinic}|for {date}|from <month>] that [I paid|I never got
  a bill for|{insurer} should have paid].
fact: [I got|We got] a [final|past due|90 day] notice for ${amount} [today|<past>], [first|the
  first] [I've heard|we've heard] of it.
ask: <can_you> [tell|show] me what <sum> [was|is] for [in the first place|before it goes further]~
ask: <can_you> [pull|take|get] it [back from collections|off my credit] [while|until] [{insurer}
  pays|we sort this out]~
detail: [The old bills|Your letters] [must have|probably] went to [our old address|{town}|the wrong
  box].

== preventive code
topic: how the visit was coded
topic: the coding of {my} physical
fact: {my} [annual physical|wellness visit|screening] on {date} was [billed|coded|sent in] as [an
  office visit|diagnostic|problem-focused], [so|and] [now I owe|I'm charged] ${amount}.
fact: [Because|Just because] (I/we) [asked about|mentioned] {my} {cond} at the [physical|free
  visit], [the code|it] changed and [the bill is|I owe] ${amount}.
ask: <can_you> have [someone|coding|{doc}] [review|recheck|correct] [the code|how it was billed]
  [for|on] {date}~

== tax receipt
topic: receipts for the year
topic: the receipt for {date}
fact: [I need|We need|My accountant needs] [receipts|a statement|proof] of [everything|all] (I/we)
  paid [{clinic}|your office] [in {2021..2024}|last year|since <month>] for [taxes|the HSA|the flex
  account].
fact: [My|The] [HSA|FSA|flex spending] [people|company] [rejected|want proof of|flagged] [the|a]
  ${amount2} [payment|copay] from {date}.
ask: <can_you> [print|post|email] [it|one|an itemized receipt] [to {email}|here|with the procedure
  codes] <soon>~

== estimate
topic: the cost before I agree to it
topic: a price for the {test}
fact: [Before|Prior to] [booking|agreeing to|doing] the {test}, <wonder> [what|how much] [it|that]
  [will cost|runs] [with {insurer}|out of pocket|without insurance]~
fact: {doc} [wants|ordered|suggests] a {test}, and the deductible is ${1..6}500 and [I've met
  ${amount2}|nothing is met|I pay it all].
ask: <can_you> [give|send|quote] me [an estimate|the price|a ballpark] [in writing|with the
  code|<soon>]~
ask: <wonder> [whether|if] [it's|it would be] cheaper [at {lab}|paying cash|at the hospital]~

== portal payment
topic: paying on the portal
topic: the payment page
fact: I [tried|keep trying|want] to pay the ${amount} [online|on the portal|here] [and|but] [the
  page|your site] [spins|says error {400..504}|rejects my card].
fact: [My|The] payment of ${amount} [from|on] {date} [left|cleared] my bank but [isn't|still isn't]
  [on your books|showing|credited].
ask: <can_you> [take|accept] [it|a card] [by phone|over the phone|at {phone}] [<soon>|instead]~
ask: <can_you> [confirm|verify] [you got it|the balance is zero|it posted] and [email|send] a
  receipt~

== refund
topic: the refund (I'm/we're) owed
topic: the credit on the account
fact: [My account|The portal|My statement] [shows|lists] a credit of ${amount} [since {date}|from
  <month>] but [no check|no refund] [has come|ever arrived].
fact: [You|{clinic}|The office] [collected|took] ${amount2} up front [on {date}|before the {test}],
  then {insurer} [paid in full|covered all of it].
ask: <can_you> [mail|issue|send] [the check|it|a refund] to [our {town} address|my card|the new
  address]~

== fees
topic: the no-show fee
topic: the paperwork fee
fact: [I was|We were] charged [a|the] ${amount2} [no-show|late cancel|paperwork|records] fee for
  {date} [even though|although|when] I [called|cancelled] [the day before|in time|{24..48} hours
  ahead].
fact: The ${amount2} [form|no-show|records|after hours] fee [on|for] {date} [isn't fair|surprised
  me|should be waived], [your phone was down|I have the confirmation|<staff> said it was fine].
ask: <can_you> [waive|drop|remove] [it|the fee|that charge] [this once|for us|as a courtesy]~
"""
