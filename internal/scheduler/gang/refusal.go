package gang

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Refusal says why a gang is not placed.
type Refusal struct {
	// Reason is alloc.ReasonNever where waiting cannot help.
	Reason alloc.Reason
	// Fit is how many members fit at most, of Need that would have to.
	Fit, Need int
	// Where is the domain in which they fit, empty where there is none in particular.
	Where string
	// Next says why the next member does not fit there.
	Next error
	text string
}

// Error is one line.
func (r *Refusal) Error() string {
	if r.text != "" {
		return r.text
	}
	where := ""
	if r.Where != "" {
		where = ", in " + r.Where
	}
	text := fmt.Sprintf("only %d of %d members fit together%s", r.Fit, r.Need, where)
	if r.Next != nil {
		text += fmt.Sprintf("; for the next, %v", r.Next)
	}
	return text
}

func never(format string, args ...any) *Refusal {
	return &Refusal{Reason: alloc.ReasonNever, text: fmt.Sprintf(format, args...)}
}

func (p *planner) incomplete() *Refusal {
	return &Refusal{
		Reason: alloc.ReasonFull, Need: p.gang.Minimum,
		text: fmt.Sprintf("%d of %d members of gang %s are there", len(p.waiting)+len(p.held), p.gang.Minimum, p.gang),
	}
}

func (p *planner) invalid(m *Member, err error) *Refusal {
	return never("member %s: %v", m.Key, err)
}

// scattered refuses a gang whose members have places that a required label forbids together.
func (p *planner) scattered() *Refusal {
	for _, level := range p.gang.Topology {
		if !level.Required {
			continue
		}
		first, known := "", false
		for i := range p.held {
			at := p.position(&p.held[i])
			if at < 0 {
				continue // its node has gone
			}
			value, ok := p.label(at, level.Label)
			switch {
			case !ok:
				return never("a member is on node %s, which has no label %s, and the gang requires it", p.held[i].Name, level.Label)
			case known && value != first:
				return never("members are on nodes with %s=%s and %s=%s, and the gang requires one value", level.Label, first, level.Label, value)
			}
			first, known = value, true
		}
	}
	return nil
}

// refuse explains why no more members fit than those that have places on trial.
func (p *planner) refuse() *Refusal {
	r := &Refusal{Reason: alloc.ReasonFull, Fit: len(p.held) + len(p.taken), Need: len(p.held) + p.need}
	where := p.where
	for where != nil && !where.required && where.up != nil {
		where = where.up
	}
	if where == nil {
		r.Reason = alloc.ReasonNever
		r.text = fmt.Sprintf("no node has the labels that gang %s requires", p.gang)
		return r
	}
	r.Where = where.path
	for _, g := range p.groups {
		if g.left == 0 {
			continue
		}
		if miss, err := p.inv.Explain(g.pod, p.among(where, g)); err == nil && miss != nil {
			r.Next = miss
			break
		}
	}
	return r
}
