package main

// lastSignal is the last of the real-time signals.
const lastSignal = 64
