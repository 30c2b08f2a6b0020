package ledger

import (
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// reading is what an expression reads of the attributes in single.
type reading struct {
	single []resourcev1.QualifiedName
	// opaque tells that it reads something in a way of which that cannot be told, such as all attributes of a domain.
	opaque bool
}

// values are what an expression reads of a device of a variety.
type values struct {
	variety *variety
	read    string
}

// pin is an attribute with a value that only a few devices have.
type pin struct {
	name  resourcev1.QualifiedName
	value string
}

// unique are attributes of which a device can be found by the value.
var unique = []resourcev1.QualifiedName{
	v1alpha1.Driver + "/" + v1alpha1.AttributeUUID, v1alpha1.Driver + "/" + v1alpha1.AttributeParent,
	v1alpha1.NVIDIADriver + "/uuid", v1alpha1.NVIDIADriver + "/parentUUID",
}

// single reports whether the expression can say different things of devices of one variety.
func (one *selector) single() bool { return one.reading.opaque || len(one.reading.single) > 0 }

// read finds out what the expression reads.
func (one *selector) read() {
	parsed, issues := one.program.Environment.Parse(one.text)
	if issues.Err() != nil {
		one.reading.opaque = true
		return
	}
	one.reading.add(parsed.NativeRep().Expr())
	one.pin = pinOf(parsed.NativeRep().Expr())
}

func (r *reading) add(e celast.Expr) {
	path, ok := pathOf(e)
	switch {
	case !ok:
		for _, part := range partsOf(e) {
			r.add(part)
		}
	case len(path) == 1 && (path[0] == "driver" || path[0] == "allowMultipleAllocations"):
	case len(path) == 3 && path[0] == "capacity":
	case len(path) == 3 && path[0] == "attributes":
		name := resourcev1.QualifiedName(path[1] + "/" + path[2])
		if single[name] && !slices.Contains(r.single, name) {
			r.single = append(r.single, name)
		}
	default:
		r.opaque = true
	}
}

// pinOf returns the value that an attribute must have so that an expression can be true; it is empty for none.
func pinOf(e celast.Expr) pin {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return pin{}
	}
	a, b := e.AsCall().Args()[0], e.AsCall().Args()[1]
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		if found := pinOf(a); found.value != "" {
			return found
		}
		return pinOf(b)
	case operators.Equals:
		if a.Kind() == celast.LiteralKind {
			a, b = b, a
		}
		path, ok := pathOf(a)
		if !ok || len(path) != 3 || path[0] != "attributes" || b.Kind() != celast.LiteralKind {
			return pin{}
		}
		name := resourcev1.QualifiedName(path[1] + "/" + path[2])
		if text, ok := b.AsLiteral().(types.String); ok && slices.Contains(unique, name) {
			return pin{name, string(text)}
		}
	}
	return pin{}
}

// pins are what the device can be found by.
func (d *device) pins() (all []pin) {
	for _, name := range unique {
		if a := d.full(name); a.StringValue != nil && *a.StringValue != "" {
			all = append(all, pin{name, *a.StringValue})
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

// pathOf returns the fixed names by which an expression goes from the device on.
func pathOf(e celast.Expr) (path []string, ok bool) {
	switch e.Kind() {
	case celast.IdentKind:
		return nil, e.AsIdent() == "device"
	case celast.SelectKind:
		path, ok = pathOf(e.AsSelect().Operand())
		return append(path, e.AsSelect().FieldName()), ok
	case celast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != celast.LiteralKind {
			return nil, false
		}
		name, text := call.Args()[1].AsLiteral().(types.String)
		path, ok = pathOf(call.Args()[0])
		return append(path, string(name)), ok && text
	}
	return nil, false
}

// partsOf are the expressions of which one is made.
func partsOf(e celast.Expr) (parts []celast.Expr) {
	switch e.Kind() {
	case celast.SelectKind:
		parts = append(parts, e.AsSelect().Operand())
	case celast.CallKind:
		if e.AsCall().IsMemberFunction() {
			parts = append(parts, e.AsCall().Target())
		}
		parts = append(parts, e.AsCall().Args()...)
	case celast.ListKind:
		parts = append(parts, e.AsList().Elements()...)
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case celast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		parts = append(parts, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return parts
}
