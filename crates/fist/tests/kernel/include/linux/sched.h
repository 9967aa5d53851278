/* sched: nothing of it is needed. */
