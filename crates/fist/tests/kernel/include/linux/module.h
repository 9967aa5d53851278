/* module: nothing of it is needed. */
