/* err: nothing of it is needed. */
