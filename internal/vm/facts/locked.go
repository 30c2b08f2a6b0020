package facts

// LockedOf is how much memory a process may lock, in bytes, by its limits and its status as /proc has them.
func LockedOf(limits, status string) int64 { return locked(limits, status) }
