// Package order is examples/order with GORM and bun: an order of several lines in one
// transaction. It is here, and not beside the others, so that neither library comes
// into the go.mod of whoever uses sqllock.
package order
