/* slab: nothing of it is needed. */
