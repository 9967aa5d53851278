/* timekeeping: nothing of it is needed. */
