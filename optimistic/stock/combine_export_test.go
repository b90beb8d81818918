package stock

import "time"

// Waiting is how many callers are in the queues.
func (c *Combined) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// Lines is how many rows somebody is at.
func (c *Combined) Lines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lines)
}

// SetBound bounds a batch by d, before it is used.
func (c *Combined) SetBound(d time.Duration) { c.bound = d }

// Gate is the gate of a claim of the row whose own id is key.
func Gate(key, of string) string { return claim{key: key, claim: of}.gate() }
