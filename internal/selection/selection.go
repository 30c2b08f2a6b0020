// Package selection tells what an expression that selects devices, as claims of Kubernetes have it, reads of a device, so
// that it need not be evaluated for each device that is alike.
package selection

import (
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Reading is what an expression reads of the attributes that tell one GPU from another that is alike.
type Reading struct {
	Single []resourcev1.QualifiedName
	// Opaque tells that it reads something in a way of which that cannot be told, such as all attributes of a domain.
	Opaque bool
	// Pin is a value without which the expression cannot be true; the zero value where none was found.
	Pin Pin
}

// Pin is an attribute with a value that only a few devices have.
type Pin struct {
	Name  resourcev1.QualifiedName
	Value string
}

// Unique are attributes of which a device can be found by the value.
var Unique = []resourcev1.QualifiedName{
	v1alpha1.Driver + "/" + v1alpha1.AttributeUUID, v1alpha1.Driver + "/" + v1alpha1.AttributeParent,
	v1alpha1.NVIDIADriver + "/uuid", v1alpha1.NVIDIADriver + "/parentUUID",
}

// single are the attributes that tell one GPU from another that is alike.
var single = map[resourcev1.QualifiedName]bool{
	v1alpha1.Driver + "/" + v1alpha1.AttributeUUID:         true,
	v1alpha1.Driver + "/" + v1alpha1.AttributeParent:       true,
	v1alpha1.Driver + "/" + v1alpha1.AttributeIndex:        true,
	v1alpha1.Driver + "/" + v1alpha1.AttributePCIeSwitch:   true,
	v1alpha1.Driver + "/" + v1alpha1.AttributeSwitch:       true,
	v1alpha1.Driver + "/" + v1alpha1.AttributeNVLinkClique: true,
	v1alpha1.Driver + "/" + v1alpha1.AttributeNUMANode:     true,
	v1alpha1.NVIDIADriver + "/uuid":                        true,
	v1alpha1.NVIDIADriver + "/parentUUID":                  true,
	v1alpha1.NVIDIADriver + "/index":                       true,

	resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot): true,
	resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIBusID): true,
	"resource.kubernetes.io/numaNode":                                         true,
}

// Qualified is the full name of an attribute.
func Qualified(name resourcev1.QualifiedName) resourcev1.QualifiedName {
	if strings.Contains(string(name), "/") {
		return name
	}
	return v1alpha1.Driver + "/" + name
}

// IsSingle reports whether an attribute tells one GPU from another that is alike.
func IsSingle(name resourcev1.QualifiedName) bool { return single[Qualified(name)] }

// Read finds out what an expression reads, of which it has the program and the text.
func Read(program dracel.CompilationResult, text string) (r Reading) {
	parsed, issues := program.Environment.Parse(text)
	if issues.Err() != nil {
		r.Opaque = true
		return r
	}
	r.add(parsed.NativeRep().Expr())
	r.Pin = pinOf(parsed.NativeRep().Expr())
	return r
}

// Varies reports whether the expression can say different things of GPUs that are alike.
func (r *Reading) Varies() bool { return r.Opaque || len(r.Single) > 0 }

func (r *Reading) add(e celast.Expr) {
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
		if single[name] && !slices.Contains(r.Single, name) {
			r.Single = append(r.Single, name)
		}
	default:
		r.Opaque = true
	}
}

// pinOf returns the value that an attribute must have so that an expression can be true; it is empty for none.
func pinOf(e celast.Expr) Pin {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return Pin{}
	}
	a, b := e.AsCall().Args()[0], e.AsCall().Args()[1]
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		if found := pinOf(a); found.Value != "" {
			return found
		}
		return pinOf(b)
	case operators.Equals:
		if a.Kind() == celast.LiteralKind {
			a, b = b, a
		}
		path, ok := pathOf(a)
		if !ok || len(path) != 3 || path[0] != "attributes" || b.Kind() != celast.LiteralKind {
			return Pin{}
		}
		name := resourcev1.QualifiedName(path[1] + "/" + path[2])
		if text, ok := b.AsLiteral().(types.String); ok && slices.Contains(Unique, name) {
			return Pin{name, string(text)}
		}
	}
	return Pin{}
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
