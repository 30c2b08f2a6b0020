// The functions of block.go that have no body are the runtime's.
