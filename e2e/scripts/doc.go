// Package scripts plays whole lives of runs through the launch service over the twins
// of the stores: with a fault at every call of a store or the queue, before and after
// it took effect, and with a crash after every write. It has no production code.
package scripts
