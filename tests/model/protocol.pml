/* One charged work from its request to its receipt: two workers, and what may go wrong at every step. README.md says
 * what is left out. An action is one transaction, or what happens between two. `-DBUG=n` plants a bug. With `-DTRACE`,
 * trace.h has the steps that the code was seen to take: nothing else that would be seen may happen. */
#define NONE 0 /* states of a work */
#define ACCEPTED 1
#define CHARGED 2
#define DRAWING 3
#define PUBLISHED 4
#define FAILED 5

#define IDLE 0 /* places of a worker */
#define LEASED 1
#define DRAWN 2 /* with an object store: encrypted there, and no row names it */
#define NAMED 3 /* its row names this draft */
#define DURABLE 4
#define FREEING 5 /* after a failure that may pass */
#define REFUSING 6 /* after one that may depend on the draw */

#ifndef BUG
#define BUG 0
#endif
#ifndef HOLE
#define HOLE 0
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef ONLY
#define ONLY 0 /* or the number of the one property that is looked at */
#endif

#ifdef TRACE
#include "trace.h"
short seen; /* steps of the trace so far */
#define SEEN(what, w, n) (seen < STEPS && step[seen] == STEP_##what && about[seen] == w && number[seen] == n)
#define NEXT seen++
#define FAULT true
#define SPEND skip
#define ONCE(flag) true
#define FORGET(clears) skip
#define ATTEMPTS_LEFT(w) (db.attempt[w] < most[w])
#define UNASKED(w) (db.state[w] == NONE)
#define ASK(w) ASK_FOR(w, batch[w], epsilon[w])
#define AT_ONCE(w) AT_ONCE_FOR(w, batch[w], epsilon[w])
#else
#define WORKS 2
#define LIFETIME 2 /* of a batch; the two batches are columns of one body of people, with this cap */
#define CAP 3
#define EACH(action) :: action(0) :: action(1)
#define ALL(holds, what) (holds(0, what) && holds(1, what))
#define SEEN(what, w, n) true
#define NEXT skip
#define FAULT (faults > 0) /* so they stop */
#define SPEND faults--
#define ONCE(flag) (!flag)
#define FORGET(clears) clears /* what no later step asks for, so that fewer states differ */
#define ATTEMPTS_LEFT(w) true
#define UNASKED(w) (!epsilon[w] && (w == 0 || epsilon[0]))
#define ASK(w) ASK_FOR(w, 0, 1) :: ASK_FOR(w, w, 2)
#define AT_ONCE(w) AT_ONCE_FOR(w, 1, 1)
byte epsilon[WORKS], batch[WORKS]; /* of the requests */
bool store, four_eyes;
#endif

typedef Database { /* from `charges` on events; `owner` is a worker's number and one */
  byte state[WORKS]; byte attempt[WORKS]; byte owner[WORKS]; byte draft[WORKS]; byte digest[WORKS];
  byte charges[WORKS]; bit approved[WORKS]; bit returned[WORKS]; bit acknowledged[WORKS]; byte spent[2]; bit purged[2]
}
Database db, old;
byte faults = FAULTS;
bit copied, restored;
/* known to no database: the newest attempt in the folder or the store, the draw that somebody saw, the receiver's */
byte begun[WORKS], shown[WORKS], received[WORKS];
bit two_shown[WORKS];
byte place[2], work[2], attempt[2], draw[2]; /* of the workers */
hidden byte i;

#define WORKING(w) (db.state[w] == CHARGED || db.state[w] == DRAWING)
#define OPEN(w) (db.charges[w] && !db.returned[w])
#define EYES(b) (four_eyes && b == 0)
#define ROW(w, b) (batch[w] == b && db.state[w] >= CHARGED && db.state[w] != FAILED -> epsilon[w] : 0)
#define SPENT(b) (BUG == 4 -> ROW(0, b) + ROW(1, b) : db.spent[b])
#define ROOM(b, e) (SPENT(b) + e <= LIFETIME && (BUG == 10 || SPENT(0) + SPENT(1) + e <= CAP))
#define CHARGE(w) db.charges[w]++; db.spent[batch[w]] = db.spent[batch[w]] + epsilon[w]
#define SHOW(w, d) if :: shown[w] && shown[w] != d -> two_shown[w] = 1 :: else -> shown[w] = d fi
#define FOR(count, body) i = 0; do :: i < count -> body; i++ :: else -> break od; i = 0

/* --- workers ---------------------------------------------------------------------------------------------------- */

#define W work[me]
#define OWNER(w) (db.owner[w] - 1)
#define AT_WORK(o, w) (place[o] != IDLE && work[o] == w && attempt[o] == db.attempt[w])
#define HELD(w) (db.owner[w] && (BUG == 12 || AT_WORK(OWNER(w), w)))
#define FREE(w) (WORKING(w) && !HELD(w) && ATTEMPTS_LEFT(w))
#define NEXT_IDLE (place[me] == IDLE && (me == 0 || place[0] != IDLE)) /* both are alike */
#define STANDS (db.attempt[W] == attempt[me] && db.state[W] == DRAWING)
#define HOLDS (BUG == 1 || (STANDS && db.owner[W] == me + 1))
#define IN_ATTEMPT (place[me] >= LEASED && place[me] <= DURABLE)
#define NOTE_BEGIN begun[W] = (ONCE(restored) -> attempt[me] : 0) /* which only a restore asks for */
#define READS (place[me] == LEASED && !db.purged[batch[W]])
#define ROWS_OF(base, d) (base.draft[W] == d || base.digest[W] == d)
#define OTHERS(d) (shown[W] == d || received[W] == d || (work[1 - me] == W && draw[1 - me] == d))
#define USED(d) (ROWS_OF(db, d) || ROWS_OF(old, d) || OTHERS(d))
#define NEW (!USED(1) -> 1 : (!USED(2) -> 2 : 3)) /* a number that no other draw of this work has */

#define LEASE(w) db.state[w] = DRAWING; db.attempt[w]++; db.owner[w] = me + 1
#define TAKE_UP(w) draw[me] = (BUG == 3 -> 0 : db.draft[w])
#define BEGIN(w) LEASE(w); place[me] = LEASED; W = w; attempt[me] = db.attempt[w]; TAKE_UP(w)
#define LEAVE place[me] = IDLE; W = 0; attempt[me] = 0; draw[me] = 0
#define END(ends) db.owner[W] = 0; db.draft[W] = 0; db.state[W] = ends
#define LATE_CHARGE if :: BUG == 2 && !db.charges[W] -> CHARGE(W) :: else fi
#define PUBLISH END(PUBLISHED); db.digest[W] = draw[me]; LATE_CHARGE; NEXT
#define NAME_DRAFT db.draft[W] = draw[me]
#define PUBLISHES (place[me] == DURABLE && HOLDS && SEEN(PUBLICATION, W, attempt[me]))

#define TAKE(w) d_step { NEXT_IDLE && FREE(w) -> BEGIN(w) }
#define TAKE_UNANSWERED(w) d_step { FAULT && NEXT_IDLE && FREE(w) -> LEASE(w); SPEND }
#define RAN_OUT(w) (WORKING(w) && HELD(w) && db.owner[w] != me + 1 && ATTEMPTS_LEFT(w))
#define TAKE_OVER(w) d_step { FAULT && place[me] == IDLE && RAN_OUT(w) -> BEGIN(w); SPEND }

proctype worker(byte me) {
end:
  do
  EACH(TAKE)
  EACH(TAKE_UNANSWERED)
  EACH(TAKE_OVER) /* its holder lives, and goes on */
  :: d_step { place[me] == LEASED && db.purged[batch[W]] -> place[me] = FREEING }
  :: d_step { READS && !draw[me] -> NOTE_BEGIN; draw[me] = NEW; place[me] = (store -> DRAWN : DURABLE) }
  :: d_step { READS && draw[me] -> NOTE_BEGIN; place[me] = NAMED } /* the draft that its row named */
  :: d_step { place[me] == DRAWN && HOLDS -> NAME_DRAFT; place[me] = NAMED }
  :: d_step { FAULT && place[me] == DRAWN && HOLDS -> NAME_DRAFT; place[me] = FREEING; SPEND }
  :: d_step { place[me] == NAMED -> SHOW(W, draw[me]); place[me] = DURABLE } /* the store sees the bytes */
  :: d_step { PUBLISHES -> PUBLISH; LEAVE }
  :: d_step { FAULT && PUBLISHES -> PUBLISH; place[me] = FREEING; SPEND }
  :: d_step { (place[me] == DRAWN || place[me] == DURABLE) && !HOLDS -> LEAVE }
  :: d_step { FAULT && IN_ATTEMPT -> place[me] = FREEING; SPEND } /* a full disk */
  :: d_step { FAULT && IN_ATTEMPT -> place[me] = REFUSING; SPEND }
  :: d_step { place[me] == FREEING && STANDS -> db.owner[W] = 0; LEAVE }
  :: d_step { place[me] == REFUSING && STANDS && SEEN(FAILURE, W, attempt[me]) -> END(FAILED); LEAVE; NEXT }
  :: d_step { place[me] >= FREEING && !STANDS -> LEAVE } /* it was published after all, or is another's */
  :: d_step { FAULT && place[me] >= FREEING -> LEAVE; SPEND } /* the database does not answer */
  :: d_step { FAULT && place[me] != IDLE && SEEN(KILL, 0, 0) -> LEAVE; SPEND; NEXT }
  od
}

/* --- people ----------------------------------------------------------------------------------------------------- */

#define NAME_REQUEST(w, b, e) epsilon[w] = e; batch[w] = b
#define ASKS(w, b, e) (UNASKED(w) && !db.purged[b] && ROOM(b, e))
#define STATE_ASKED(w) db.state[w] = (EYES(batch[w]) && BUG != 15 -> ACCEPTED : CHARGED)
#define FIRST_CHARGE(w) if :: db.state[w] == CHARGED && BUG != 2 -> CHARGE(w) :: else fi
#define ASK_FOR(w, b, e) \
  d_step { ASKS(w, b, e) && SEEN(REQUEST, w, 0) -> NAME_REQUEST(w, b, e); STATE_ASKED(w); FIRST_CHARGE(w); NEXT }
#define NOTE 255 /* of an answer that is charged, drawn and published in one transaction */
#define DRAW_AT_ONCE(w) CHARGE(w); db.state[w] = PUBLISHED; db.attempt[w] = 1; db.digest[w] = 1; begun[w] = NOTE
#define AT_ONCE_FOR(w, b, e) \
  d_step { ASKS(w, b, e) && !EYES(b) && SEEN(ANSWER, w, 0) -> NAME_REQUEST(w, b, e); DRAW_AT_ONCE(w); NEXT }
/* a call whose reply was lost, with its key again: without the bug it has its first reply */
#define ASK_AGAIN(w) \
  d_step { BUG == 13 && FAULT && db.state[w] != NONE && ROOM(batch[w], epsilon[w]) -> CHARGE(w); SPEND }
#define AFFORDS(w) (BUG == 7 || ROOM(batch[w], epsilon[w]))
#define APPROVE(w) \
  d_step { db.state[w] == ACCEPTED && AFFORDS(w) && SEEN(APPROVAL, w, 0) -> \
    CHARGE(w); db.approved[w] = 1; db.state[w] = CHARGED; NEXT }
#define UNDRAWN(w) (WORKING(w) && (BUG == 6 || db.attempt[w] == 0))
#define RETURN(w) db.returned[w] = 1; db.spent[batch[w]] = db.spent[batch[w]] - epsilon[w]
#define CANCEL(w) \
  d_step { (db.state[w] == ACCEPTED || UNDRAWN(w)) && SEEN(CANCELLATION, w, 0) -> \
    if :: WORKING(w) -> RETURN(w) :: else fi; db.state[w] = FAILED; NEXT }
#define SERVED(w) (db.state[w] == PUBLISHED && db.digest[w])
#define FETCHES(w) (SERVED(w) && received[w] != db.digest[w])
#define FETCH(w) SHOW(w, db.digest[w]); received[w] = db.digest[w]
#define RECEIVE(w) d_step { FETCHES(w) && SEEN(RECEIPT, w, 0) -> FETCH(w); db.acknowledged[w] = 1; NEXT }
#define RECEIVE_ALONE(w) d_step { FAULT && FETCHES(w) -> FETCH(w); SPEND } /* its receipt is lost */
#define UNCONFIRMED(w) (db.state[w] == PUBLISHED && received[w] && !db.acknowledged[w])
#define CONFIRM(w) d_step { UNCONFIRMED(w) && SEEN(RECEIPT, w, 0) -> db.acknowledged[w] = 1; NEXT }
#define RESTS(w, b) (batch[w] != b || !WORKING(w))
#define DECLINE(b) if :: batch[i] == b && db.state[i] == ACCEPTED -> db.state[i] = FAILED :: else fi
#define PURGES (!db.purged[0] && (BUG == 8 || ALL(RESTS, 0)))

proctype people() {
end:
  do
  EACH(ASK)
  EACH(AT_ONCE)
  EACH(ASK_AGAIN)
  EACH(APPROVE)
  EACH(CANCEL)
  EACH(RECEIVE)
  EACH(RECEIVE_ALONE)
  EACH(CONFIRM)
  :: d_step { PURGES && SEEN(PURGE, 0, 0) -> db.purged[0] = 1; FOR(WORKS, DECLINE(0)); NEXT }
  od
}

/* --- backups ---------------------------------------------------------------------------------------------------- */

#define COPY_ROW(a, b) b.state[i] = a.state[i]; b.attempt[i] = a.attempt[i]; b.draft[i] = a.draft[i]; \
  b.digest[i] = a.digest[i]; b.owner[i] = 0 /* nobody lives who held a lease */
#define COPY_EVENTS(a, b) b.charges[i] = a.charges[i]; b.approved[i] = a.approved[i]; b.returned[i] = a.returned[i]; \
  b.acknowledged[i] = a.acknowledged[i]
#define COPY_BATCH(a, b) b.spent[i] = a.spent[i]; b.purged[i] = a.purged[i]
#define COPY(a, b) FOR(WORKS, COPY_ROW(a, b); COPY_EVENTS(a, b)); FOR(2, COPY_BATCH(a, b))
#define STOP_WORKER(me) place[me] = IDLE; work[me] = 0; attempt[me] = 0; draw[me] = 0
#define CLEAR_ROW old.state[i] = NONE; old.attempt[i] = 0; old.draft[i] = 0; old.digest[i] = 0; \
  old.charges[i] = 0; old.approved[i] = 0; old.returned[i] = 0; old.acknowledged[i] = 0; begun[i] = 0
#define CLEAR FOR(WORKS, CLEAR_ROW); FOR(2, old.spent[i] = 0; old.purged[i] = 0)
#define RESTART STOP_WORKER(0); STOP_WORKER(1); FORGET(CLEAR); restored = 1; NEXT

/* `restore` ends what is unfinished, in a fresh folder or beside the store */
#define UNFINISHED(w) (db.state[w] == ACCEPTED || (WORKING(w) && BUG != 5))
#define END_UNFINISHED \
  FOR(WORKS, db.owner[i] = 0; begun[i] = (store -> begun[i] : 0); \
    if :: UNFINISHED(i) -> db.state[i] = FAILED :: else fi)
/* by this party's newest export, whose events go on; the files that were published since are lost */
#define RESTORE_OWN \
  if :: BUG == 14 -> COPY(old, db) \
  :: else -> FOR(WORKS, db.digest[i] = (old.state[i] == PUBLISHED -> db.digest[i] : 0); \
       db.attempt[i] = old.attempt[i]; db.draft[i] = old.draft[i]) \
  fi; END_UNFINISHED
/* by a receiver's record alone: what it accepted is charged, unless it was, and published */
#define RECORD if :: !db.charges[i] -> CHARGE(i); db.approved[i] = 1 :: else fi; \
  db.state[i] = PUBLISHED; db.digest[i] = 0; db.draft[i] = 0
#define RESTORE_RECEIVED \
  COPY(old, db); FOR(WORKS, if :: received[i] && db.state[i] != PUBLISHED -> RECORD :: else fi); END_UNFINISHED
#define LATER(w, b) (batch[w] == b && received[w] && !old.charges[w] -> epsilon[w] : 0)
#define AFTER(b) (old.spent[b] + LATER(0, b) + LATER(1, b))
#define RECORD_FITS (AFTER(0) <= LIFETIME && AFTER(1) <= LIFETIME && AFTER(0) + AFTER(1) <= CAP)
#define OF_PURGED(w, _) (!received[w] || old.charges[w] || !old.purged[batch[w]])
#define KNOWN(w) (old.charges[w] || received[w] || (BUG == 11 && old.state[w] != NONE))
#define STORE_AGREES(w, _) (!store || !begun[w] || begun[w] == NOTE || KNOWN(w))
#define RECORD_AGREES (RECORD_FITS && ALL(OF_PURGED, 0) && ALL(STORE_AGREES, 0))
/* a database put back in its place: refused beside a newer folder or store. SECURITY.md names what is not noticed: a
 * row from the midst of the attempt that was published */
#define GOES_ON(w) (old.state[w] == CHARGED || old.state[w] == DRAWING || (BUG != 9 && old.state[w] == ACCEPTED))
#define OF_AGE(w, _) (!begun[w] || (old.state[w] != NONE && (!GOES_ON(w) || begun[w] <= old.attempt[w])))
#define NEWEST (ALL(OF_AGE, 0) && ALL(NOT_MIDST, 0))
#define NOT_MIDST(w, _) (HOLE || old.state[w] != DRAWING || !shown[w] || old.draft[w])

proctype operator() {
end:
  do
  :: d_step { ONCE(copied) && SEEN(COPY, 0, 0) -> COPY(db, old); copied = 1; NEXT }
  :: d_step { copied && ONCE(restored) && SEEN(RESTORE, 0, 0) -> RESTORE_OWN; RESTART }
  :: d_step { copied && ONCE(restored) && RECORD_AGREES && SEEN(RECORD, 0, 0) -> RESTORE_RECEIVED; RESTART }
  :: d_step { copied && ONCE(restored) && NEWEST && SEEN(RETURN, 0, 0) -> COPY(old, db); RESTART }
  od
}

/* --- what must hold --------------------------------------------------------------------------------------------- */

#ifdef TRACE
bool accepted; /* named by the assertion that fails where the model can do all that was seen */
#define RESTING (place[0] == IDLE && place[1] == IDLE)
#define LOOK(w) d_step { RESTING && SEEN(ROW, w, 16 * db.state[w] + db.attempt[w]) -> NEXT }

active proctype observer() {
end:
  do
  EACH(LOOK)
  :: d_step { RESTING && SEEN(KILL, 0, 0) -> NEXT }
  :: d_step { !ALL(OF_AGE, 0) && SEEN(REFUSAL, 0, 0) -> NEXT }
  :: atomic { seen == STEPS -> assert(accepted) }
  od
}
#else
bool paid, agreed, one_draw, one_charge, lifetime, body; /* names of failures, none ever true */
#define PAID(w, _) ((db.state[w] != PUBLISHED && !shown[w]) || OPEN(w))
#define AGREED(w, _) (!EYES(batch[w]) || !db.charges[w] || db.approved[w])
#define ONE_DRAW(w, _) (!two_shown[w])
#define ONE_CHARGE(w, _) (db.charges[w] <= 1)
#define COST(w, b) (batch[w] == b && (OPEN(w) || shown[w]) -> epsilon[w] : 0)
#define COSTS(b) (COST(0, b) + COST(1, b))
#define HOLD(number, holds, name) :: atomic { (ONLY == 0 || ONLY == number) && !(holds) -> assert(name) }

active proctype properties() {
end:
  do
  HOLD(1, ALL(PAID, 0), paid)
  HOLD(2, ALL(AGREED, 0), agreed)
  HOLD(3, ALL(ONE_DRAW, 0), one_draw)
  HOLD(4, ALL(ONE_CHARGE, 0), one_charge)
  HOLD(5, COSTS(0) <= LIFETIME && COSTS(1) <= LIFETIME, lifetime)
  HOLD(6, COSTS(0) + COSTS(1) <= CAP, body)
  od
}

ltl ends { [] <> !WORKING(0) && [] <> !WORKING(1) }
#endif

init {
  atomic {
#ifndef TRACE
    if :: store = true :: skip fi;
    if :: four_eyes = true :: skip fi;
#endif
    run worker(0); run worker(1); run people(); run operator()
  }
}
