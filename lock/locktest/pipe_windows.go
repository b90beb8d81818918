package locktest

// parentPipe: there are no files to hand on.
const parentPipe = 0
