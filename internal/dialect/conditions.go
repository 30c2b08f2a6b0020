package dialect

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// OwnedNames returns what each dialect reads, by the name that enables it, whatever is turned on.
func OwnedNames() map[string]Names {
	all := make(map[string]Names, len(dialects))
	for name, made := range dialects {
		if dialect, err := made(options{dialect: name}); err == nil {
			all[name] = dialect.Owns()
		}
	}
	return all
}

// Split tells names from prefixes, which end in '*' and are returned without it.
func Split(all []string) (names, prefixes []string) {
	for _, name := range all {
		if prefix, open := strings.CutSuffix(name, "*"); open {
			prefixes = append(prefixes, prefix)
		} else {
			names = append(names, name)
		}
	}
	return names, prefixes
}

// PodCondition returns the CEL expression that is true of pods that name anything in these dialects. It stands in the
// webhook's matchConditions, so that other pods never depend on the webhook.
func PodCondition(names ...Names) string {
	var resources, annotations []string
	for _, n := range names {
		resources = append(resources, n.Resources...)
		annotations = append(annotations, n.Annotations...)
	}
	var terms []string
	if key := keyIn(resources); key != "" {
		list := func(name string) string {
			return fmt.Sprintf("has(c.resources.%[1]s) && c.resources.%[1]s.exists(n, %[2]s)", name, key)
		}
		terms = append(terms, anyContainer("has(c.resources) && ("+list("limits")+" || "+list("requests")+")"))
	}
	if key := keyIn(annotations); key != "" {
		terms = append(terms, "has(object.metadata.annotations) && object.metadata.annotations.exists(n, "+key+")")
	}
	if len(terms) == 0 {
		return "false"
	}
	return strings.Join(terms, " || ")
}

// Condition is PodCondition of the dialects that are turned on.
func (t *Translator) Condition() string {
	var names []Names
	for _, dialect := range t.dialects {
		names = append(names, dialect.Owns())
	}
	return PodCondition(names...)
}

// ContainerCondition returns the CEL expression that is true of pods whose claims [CheckContainers] or [CheckHostMemory] has to
// look at.
func ContainerCondition() string {
	return anyContainer("has(c.resources) && has(c.resources.claims) && (size(c.resources.claims) > 1" +
		" || has(object.spec.runtimeClassName)" +
		" || has(c.resources.limits) && 'memory' in c.resources.limits" +
		" || has(object.spec.resources) && has(object.spec.resources.limits) && 'memory' in object.spec.resources.limits" +
		" || has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged)")
}

// ClaimCondition returns the CEL expression that is true of claims that name Divvy's classes or its driver.
func (c Classes) ClaimCondition() string { return c.condition("object.spec") }

// TemplateCondition is ClaimCondition of templates.
func (c Classes) TemplateCondition() string { return c.condition("object.spec.spec") }

// QueueCondition returns the CEL expression that is true of queues that are made or deleted, or whose specification changes.
func QueueCondition() string {
	return "request.operation != 'UPDATE' || object.spec != oldObject.spec"
}

func (c Classes) condition(spec string) string {
	classes := list(c.all())
	drivers := "== '" + v1alpha1.Driver + "'"
	if c.NVIDIA {
		drivers = "in " + list([]string{v1alpha1.Driver, v1alpha1.NVIDIADriver})
	}
	way := exists("r.firstAvailable", "w", "w.deviceClassName in "+classes)
	requests := exists(spec+".devices.requests", "r", "has(r.exactly) && r.exactly.deviceClassName in "+classes+" || "+way)
	config := exists(spec+".devices.config", "c", "has(c.opaque) && c.opaque.driver "+drivers)
	return fmt.Sprintf("has(%s.devices) && (%s || %s)", spec, requests, config)
}

// AdminClaimCondition returns the CEL expression that is true of claims that [OpenPatch] changes.
func (c Classes) AdminClaimCondition() string { return c.adminCondition("object.spec") }

// AdminTemplateCondition is AdminClaimCondition of templates.
func (c Classes) AdminTemplateCondition() string { return c.adminCondition("object.spec.spec") }

func (c Classes) adminCondition(spec string) string {
	classes := list(c.devices())
	return fmt.Sprintf("has(%s.devices) && %s", spec, exists(spec+".devices.requests", "r",
		"has(r.exactly) && has(r.exactly.adminAccess) && r.exactly.adminAccess && !has(r.exactly.capacity) && r.exactly.deviceClassName in "+classes))
}

// anyContainer is true of pods with a container c of which the expression is true.
func anyContainer(expression string) string {
	return exists("object.spec.containers", "c", expression) + " || " + exists("object.spec.initContainers", "c", expression)
}

// exists is true of a list with an item of which the expression is true. The API server writes some empty lists as
// null.
func exists(list, item, expression string) string {
	return fmt.Sprintf("has(%[1]s) && %[1]s != null && %[1]s.exists(%[2]s, %[3]s)", list, item, expression)
}

// keyIn is true of a key n that is one of the names, of which those that end in '*' stand for all that begin so; it is
// empty where there are none.
func keyIn(all []string) string {
	names, prefixes := Split(all)
	var terms []string
	if len(names) > 0 {
		terms = append(terms, "n in "+list(names))
	}
	for _, prefix := range prefixes {
		terms = append(terms, "n.startsWith('"+prefix+"')")
	}
	return strings.Join(terms, " || ")
}

func list(names []string) string {
	return "['" + strings.Join(names, "', '") + "']"
}
