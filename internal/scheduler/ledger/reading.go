package ledger

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/selection"
)

// values are what an expression reads of a device of a variety.
type values struct {
	variety *variety
	read    string
}

// pins are what the device can be found by.
func (d *device) pins() (all []selection.Pin) {
	for _, name := range selection.Unique {
		if a := d.full(name); a.StringValue != nil && *a.StringValue != "" {
			all = append(all, selection.Pin{Name: name, Value: *a.StringValue})
		}
	}
	return all
}

// full is an attribute by its full name, the zero value for none.
func (d *device) full(name resourcev1.QualifiedName) resourcev1.DeviceAttribute {
	if a, ok := d.spec.Attributes[name]; ok {
		return a
	}
	short, _ := strings.CutPrefix(string(name), v1alpha1.Driver+"/")
	return d.spec.Attributes[resourcev1.QualifiedName(short)]
}

// values is equal for devices that have the same of these attributes.
func (d *device) values(names []resourcev1.QualifiedName) string {
	var text strings.Builder
	for _, name := range names {
		switch a := d.full(name); {
		case a.StringValue != nil:
			fmt.Fprintf(&text, "%q ", *a.StringValue)
		case a.IntValue != nil:
			fmt.Fprintf(&text, "%d ", *a.IntValue)
		default:
			fmt.Fprintf(&text, "%v ", a.String())
		}
	}
	return text.String()
}
