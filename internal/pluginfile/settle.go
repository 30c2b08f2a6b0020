package pluginfile

import (
	"slices"
	"strconv"
	"strings"
)

// settle judges what depends on several keys.
func (r *reader) settle() {
	r.settleDeviceRoot()
	for _, judge := range r.later {
		judge()
	}
	for _, at := range []string{"sharing.timeSlicing", "sharing.mps"} {
		s := r.sharing[at]
		if s != nil && !slices.ContainsFunc(r.entries, func(e *entry) bool { return e.of == s }) {
			r.fault(s.node, at+".resources", "missing: name the resource of which there are replicas")
		}
	}
	for i, e := range r.entries {
		for _, want := range []string{"name", "replicas"} {
			if !e.said[want] {
				r.fault(e.node, e.field+"."+want, "missing: a resource has name and replicas")
			}
		}
		for _, other := range r.entries[:i] {
			if twice := common(e, other); twice != "" {
				r.fault(e.node, e.field, "%s has replicas by %s already: one entry for each GPU", twice, other.field)
			}
		}
		r.settleEntry(e)
	}
}

// settleEntry adds an entry that nothing refuses.
func (r *reader) settleEntry(e *entry) {
	if e.refused || e.idle || e.resource == "" || e.replicas == 0 {
		return
	}
	added := Replicated{Field: e.field, Resource: e.resource, Backend: e.of.backend, Devices: e.devices, Replicas: e.replicas, Renamed: e.of.rename, Single: e.of.fail}
	if e.rename != "" {
		added.Renamed = e.rename != e.resource
	}
	for i := range r.config.Replicated {
		other := &r.config.Replicated[i]
		if added.Name() == other.Name() && added.Single != other.Single {
			r.fault(e.node, e.field, "its replicas have the name of those of %s, and another failRequestsGreaterThanOne: write the same in both", other.Field)
			return
		}
	}
	r.config.Replicated = append(r.config.Replicated, added)
}

// common names a GPU that two entries have in common; it is empty where that is not known.
func common(a, b *entry) string {
	if a.resource != b.resource {
		return ""
	}
	if a.devices.All() || b.devices.All() {
		return "every GPU"
	}
	for i := range max(a.devices.Count, b.devices.Count) {
		if a.devices.has(i) && b.devices.has(i) {
			return "GPU " + strconv.Itoa(i)
		}
	}
	for _, name := range a.devices.List {
		if slices.ContainsFunc(b.devices.List, func(o string) bool { return strings.EqualFold(o, name) }) {
			return "GPU " + name
		}
	}
	return ""
}
