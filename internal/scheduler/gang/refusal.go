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
	text := fmt.Sprintf("at most %d of %d members fit together%s", r.Fit, r.Need, where)
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

// scattered refuses a gang whose members have places with several values of a required label.
func (p *planner) scattered() *Refusal {
	for _, level := range p.gang.Topology {
		if !level.Required {
			continue
		}
		first, known := "", false
		for i := range p.held {
			value, ok := p.label(p.position(&p.held[i]), level.Label)
			switch {
			case !ok:
			case known && value != first:
				return never("members are on nodes with %s=%s and %s=%s, and the gang requires one value", level.Label, first, level.Label, value)
			default:
				first, known = value, true
			}
		}
	}
	return nil
}

// refuse explains the attempt that came furthest.
func (p *planner) refuse(best *attempt) *Refusal {
	p.again(best.taken)
	r := &Refusal{Reason: alloc.ReasonFull, Fit: len(p.held) + len(p.taken), Need: len(p.held) + p.need}
	if best.where == nil {
		r.Reason = alloc.ReasonNever
		r.text = fmt.Sprintf("no node has the labels that gang %s requires", p.gang)
		return r
	}
	r.Where = best.where.path
	for _, g := range p.groups {
		if g.left == 0 {
			continue
		}
		choices, err := p.inv.PodChoices(g.pod, p.among(best.where, g))
		if err != nil {
			continue
		}
		if _, fits := choices.Next(); !fits || r.Next == nil {
			refusal := choices.Refusal()
			if refusal != nil {
				r.Next = refusal
			}
			if !fits {
				break
			}
		}
	}
	return r
}
