package reclaim

import (
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// spares reports whether a candidate does not end, whatever its queue has.
func (t *trial) spares(c *Candidate) bool {
	d := t.demander
	if c.ID == d.ID || t.options.Now.Sub(c.Start) < t.tree.MinimumRunTime(c.Queue) || slices.Contains(c.TookFrom, d.Queue) {
		return true
	}
	if t.moving {
		return !c.moves()
	}
	return c.Quota == v1alpha1.QuotaGuaranteed && t.guards(c)
}

// guards reports whether something can be guaranteed of what a candidate has: its queue was not deleted, and names such GPUs.
func (t *trial) guards(c *Candidate) bool {
	return slices.ContainsFunc(c.Members, func(m Member) bool { return t.tree.Covers(c.Queue, m.Charge) })
}
