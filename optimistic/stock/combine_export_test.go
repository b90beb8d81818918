package stock

// Waiting is how many callers are in the queues.
func (c *Combined) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}
