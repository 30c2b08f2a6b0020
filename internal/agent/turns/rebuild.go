package turns

import (
	"context"
	"maps"
)

// rebuild takes up who came, who went and whose terms changed.
func (l *Loop) rebuild(ctx context.Context, now uint64, p *published) {
	present := map[string]bool{}
	changed := false
	for i := range p.members {
		m := &p.members[i]
		present[m.ID] = true
		s := l.tenants[m.ID]
		switch {
		case m.Ends && s != nil:
			s.open()
			s.close()
			delete(l.tenants, m.ID)
			changed = true
			continue
		case m.Ends: // its gate opens by itself
			continue
		case s != nil:
			s.change(m)
			continue
		}
		s, err := openShare(m, l.gpus)
		if err != nil {
			l.tellSpoilt(ctx, m.ID, err)
			continue
		}
		delete(l.spoilt, m.ID)
		l.tenants[m.ID], changed = s, true
	}
	maps.DeleteFunc(l.spoilt, func(id, _ string) bool { return !present[id] })
	for id, s := range l.tenants {
		if !present[id] {
			s.close()
			delete(l.tenants, id)
			changed = true
		}
	}
	l.gpus.allow(p.rooms)
	if changed {
		l.groups = regroup(now, l.groups, l.tenants)
	}
}

// tellSpoilt tells once why a tenant cannot be served. The look that every tenant gets tells of its pages.
func (l *Loop) tellSpoilt(ctx context.Context, id string, err error) {
	if l.spoilt[id] == err.Error() {
		return
	}
	l.spoilt[id] = err.Error()
	l.config.Log.WarnContext(ctx, "cannot have a tenant take turns in memory", "tenant", id, "error", err)
}
