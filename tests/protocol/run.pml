/* The protocol of a journal on shared storage, for spin: which driver may do what, and when a batch counts. It is
   checked before it is built; the journal of a run in process, with its lock, needs less.

   A journal has objects epoch/E, begin/N and end/N, which are put if absent. STARTS drivers are started on one
   checkpoint. Each may be slower than all the others at any step, or never take another step: that is a crash. The task
   of an attempt may write its part at any later time, also after the attempt was given up.

   Each macro in `test_protocol.py` takes away one rule of the protocol, and some assertion must fail then. CHECK chooses
   one assertion by its number; 0 stands for all. */

#ifndef CHECK
#define CHECK 0
#endif
#define HOLDS(number, condition) \
  if :: CHECK == 0 || CHECK == number -> assert(condition) :: else -> skip fi

#define WRITERS (STARTS * ATTEMPTS) /* an attempt of a driver at a batch: a number from 1 */
#ifdef SAME_NAMES
#define PART(batch, writer) part[(batch) * (WRITERS + 1)]
#else
#define PART(batch, writer) part[(batch) * (WRITERS + 1) + (writer)]
#endif

/* The store. 0 means that there is no such object. */
byte epochs;          /* the number of epochs; they are never pruned */
byte begun[BATCHES];  /* the driver, from 1, that planned the input */
byte ended[BATCHES];  /* the writer whose state and parts count */

/* The sinks */
byte part[BATCHES * (WRITERS + 1)]; /* the writer of its content */
byte published[BATCHES];            /* the writer whose part readers see */
byte given[BATCHES];                /* the driver that planned the input of the rows that a sink has received */
byte accepted;                      /* batches that a sink with a ledger has */

/* What only an observer knows */
byte owner;                             /* the driver that started last, from 1 */
byte pruned;                            /* batches that were pruned */
byte counted[BATCHES];                  /* the writer of the first end */
bool finished[BATCHES * (WRITERS + 1)]; /* the task of a writer at a batch */

proctype Task(byte batch, writer) {
  PART(batch, writer) = writer;
  finished[(batch) * (WRITERS + 1) + (writer)] = true
}

inline publish(batch, writer) {
  atomic {
    published[batch] = writer;
    HOLDS(1, published[batch] == counted[batch])
  }
}

/* Removes the parts that did not count. */
inline sweep(batch, kept) {
  atomic {
    for (i : 1 .. WRITERS) {
      if
      :: i != kept && PART(batch, i) == i && PART(batch, i) != PART(batch, kept) -> PART(batch, i) = 0
      :: else -> skip
      fi
    }
  }
}

/* Asks whether there is a newer epoch. */
inline ask() {
#ifndef NO_EPOCHS
  if
  :: epochs > mine -> goto refused
  :: else -> skip
  fi
#else
  skip
#endif
}

proctype Driver(byte me) {
  byte mine;    /* its epoch */
  byte batch, attempt, planned, writer, i;
  byte before;  /* the writer whose state it goes on from */
  byte late;    /* batches that it gave to sinks when there was a newer driver */
  bool anew;    /* it has planned a batch that had ended */
#ifdef NO_EPOCHS
  byte taken;   /* the batch with which it starts */
#endif

  atomic { epochs++; mine = epochs; owner = me + 1 }; /* epoch/E is put if absent, until one is its own */
  atomic { /* it lists the ends */
    batch = BATCHES;
    do
    :: batch > 0 && ended[batch - 1] == 0 -> batch--
    :: else -> break
    od;
    if
    :: batch > 0 -> before = ended[batch - 1]
    :: else -> skip
    fi
  };
  if
  :: before != 0 -> publish(batch - 1, before)
  :: else -> skip
  fi;
#ifdef NO_EPOCHS
  taken = batch;
#endif
  do
  :: batch == BATCHES -> break
  :: else ->
     atomic { /* begin/N is put if absent, and read */
       if
       :: begun[batch] == 0 -> begun[batch] = me + 1; anew = batch < pruned
       :: else -> skip
       fi;
       planned = begun[batch]
     };
#ifdef INPUT_ANEW
     planned = me + 1;
#endif
#ifdef NO_EPOCHS /* instead, who finds that another has begun a batch has lost, unless it starts with that batch */
     if
     :: planned != me + 1 && batch != taken -> goto refused
     :: else -> skip
     fi;
#endif
     attempt = 0;
again:
#ifndef NO_QUESTION_BEFORE_SINKS
     ask();
#endif
     writer = me * ATTEMPTS + attempt + 1;
#ifdef SWEEP_BEFORE_END
     sweep(batch, writer);
#endif
     run Task(batch, writer);
     if
     :: finished[batch * (WRITERS + 1) + writer] -> skip
     :: attempt + 1 < ATTEMPTS -> attempt++; goto again /* or it failed, and its task may go on */
     fi;
     atomic {
       late = late + (owner != me + 1);
       HOLDS(2, late <= 1);
       HOLDS(4, !anew);
       HOLDS(5, given[batch] == 0 || given[batch] == planned);
       given[batch] = planned;
       if
       :: accepted == batch -> accepted++
       :: else -> skip
       fi
     };
     atomic { /* end/N is put if absent, and read */
       if
#ifdef END_ALWAYS
       :: true ->
#else
       :: ended[batch] == 0 ->
#endif
          ended[batch] = writer;
          if
          :: counted[batch] == 0 ->
             counted[batch] = writer;
             HOLDS(6, given[batch] != 0 && (batch == 0 || before == counted[batch - 1]))
          :: else -> skip
          fi
#ifndef END_ALWAYS
       :: else -> skip
#endif
       fi;
       before = ended[batch]
     };
#ifdef NO_EPOCHS
     if
     :: before != writer -> goto refused
     :: else -> skip
     fi;
#endif
#ifndef NO_QUESTION_BEFORE_PUBLISHING
     ask();
#endif
     publish(batch, before);
     sweep(batch, before);
     atomic { /* it prunes all but this batch */
       i = 0;
       do
       :: i < batch -> begun[i] = 0; ended[i] = 0; i++
       :: else -> break
       od;
       pruned = (pruned > batch -> pruned : batch)
     };
     batch++
  od;
  atomic {
    HOLDS(7, accepted == BATCHES);
    i = 0;
    do
    :: i < BATCHES -> HOLDS(7, published[i] == counted[i]); i++
    :: else -> break
    od
  };
  goto done;
refused:
  HOLDS(3, owner != me + 1);
done:
  skip
}

/* Holds at any time: what readers see is what counts. */
active proctype Reader() {
  byte i;
  atomic {
    i = 0;
    do
    :: i < BATCHES ->
       HOLDS(8, published[i] == 0 || PART(i, published[i]) == published[i]);
       i++
    :: else -> break
    od
  }
}

init {
  byte i;
  atomic {
    for (i : 0 .. STARTS - 1) {
      run Driver(i)
    }
  }
}
