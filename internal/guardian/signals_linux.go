package guardian

// lastSignal is the last of the real-time signals.
const lastSignal = 64
