//go:build !windows

package locktest

// parentPipe is the file of a child that ends when its parent does: the first of
// exec.Cmd's ExtraFiles.
const parentPipe = 3
