/* pagemap: nothing of it is needed. */
