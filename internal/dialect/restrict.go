package dialect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// attributeOf is the CEL expression for an attribute of a device.
func attributeOf(name string) string {
	return fmt.Sprintf("device.attributes[%q].%s", v1alpha1.Driver, name)
}

// capacityOf is the CEL expression for a capacity of a device.
func capacityOf(name string) string {
	return fmt.Sprintf("device.capacity[%q].%s", v1alpha1.Driver, name)
}

// uuidIs is true of the device of a GPU, or of a MIG instance on it, with the UUID that stands for %s.
func (r *Request) uuidIs() string {
	if r.instance() {
		return attributeOf(v1alpha1.AttributeParent) + " == %s"
	}
	return attributeOf(v1alpha1.AttributeUUID) + " == %s"
}

// The names that a selector may contain. They have no quotes and no backslashes, so they cannot end a CEL string.
var (
	modelPattern = regexp.MustCompile(`^[A-Za-z0-9 ._()/+-]{1,64}$`)
	uuidPattern  = regexp.MustCompile(`^GPU-[0-9a-fA-F-]{4,36}$`)
)

const longestList = 16

// restrictTo adds a selector for the list in an annotation. A GPU must match one of the items, or none of them if
// allowed is false.
func restrictTo(asked *limits, request *Request, notes map[string]string, name, expression string, allowed bool, pattern *regexp.Regexp, normal func(string) string) {
	list, ok := notes[name]
	if !ok {
		return
	}
	var terms []string
	for _, item := range strings.Split(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if !pattern.MatchString(item) || len(terms) == longestList {
			asked.refuse("annotation %s: %q: give at most %d names, separated by commas", name, item, longestList)
			return
		}
		terms = append(terms, fmt.Sprintf(expression, `"`+normal(item)+`"`))
	}
	if len(terms) == 0 {
		asked.refuse("annotation %s names nothing", name)
		return
	}
	slices.Sort(terms)
	selector := strings.Join(slices.Compact(terms), " || ")
	if !allowed {
		selector = "!(" + selector + ")"
	}
	request.Selectors = append(request.Selectors, selector)
}
