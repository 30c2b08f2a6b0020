package ledger

import "github.com/divvy-gpu/divvy/internal/alloc"

// Held is what the inventory counts for a claim, by "namespace/name": one assignment for each node of its allocation, or what is
// reserved for it. The caller must not change it.
func (l *Ledger) Held(key string) []alloc.Assignment {
	if g := l.claims[key]; g != nil {
		return g.held
	}
	if f, ok := l.flights[key]; ok {
		return []alloc.Assignment{f.given}
	}
	return nil
}
