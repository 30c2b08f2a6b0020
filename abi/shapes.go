package abi

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A shape is a hook that lib/cuda writes for every function that names it.
type shape struct {
	kinds  []Kind   // what its functions do, so that none is charged for something else or for nothing
	first  []string // types of the first parameters, where the hook uses them
	only   bool     // whether there is no other parameter
	stream bool     // whether one parameter has to be the stream in whose order the function works
	calls  []string // of these one is part of the hook, if there are any
}

var shapes = map[string]shape{
	"asks":         {kinds: []Kind{Sync}, first: []string{"CUstream"}, only: true, stream: true},
	"captures":     {kinds: []Kind{Capture}, stream: true},
	"changes":      {kinds: []Kind{Graph}, first: []string{"CUgraphExec"}},
	"copies":       {kinds: []Kind{Copy}, calls: []string{"between", "boxes", "crossing", "described", "filling", "pairs", "within"}},
	"destroys":     {kinds: []Kind{Pass}, first: []string{"CUstream"}, only: true, stream: true},
	"ends":         {kinds: []Kind{Capture}, stream: true},
	"follows":      {kinds: []Kind{Copy, Sync, Pass}, stream: true},
	"instantiates": {kinds: []Kind{Graph}, first: []string{"CUgraphExec *", "CUgraph"}},
	"launches":     {kinds: []Kind{Launch}, stream: true, calls: []string{"cost_kernel"}},
	"migrates":     {kinds: []Kind{Copy, Pass}, stream: true, calls: []string{"told", "told_all"}},
	"moves":        {kinds: []Kind{Copy}, stream: true},
	"records":      {kinds: []Kind{Pass}, first: []string{"CUevent", "CUstream"}, stream: true},
	"waits":        {kinds: []Kind{Sync}, first: []string{"CUstream"}, only: true, stream: true},
}

// What a call takes: a parameter of one of these types. A count can be a digit too.
const (
	anAmount = `size_t|unsigned int`
	aCount   = anAmount + `|[0-9]`
	aValue   = `unsigned (char|short|int)`
	aPointer = `CUdeviceptr`
)

// calls are what the calls in hooks take.
var calls = map[string][]string{
	"between":     {aPointer, aPointer, anAmount},
	"boxes":       {`CUDA_MEMCPY3D_BATCH_OP \*`, aCount},
	"cost_kernel": append([]string{"CUfunction"}, slices.Repeat([]string{"unsigned int"}, 7)...),
	"crossing":    {},
	"described":   {`const CUDA_MEMCPY(2D|3D)(_v1)? \*|const CUDA_MEMCPY3D_PEER \*`},
	"filling":     {aValue, anAmount, aCount},
	"pairs":       {aPointer + ` \*`, aPointer + ` \*`, `size_t \*`, anAmount},
	"told":        {aPointer},
	"told_all":    {aPointer + ` \*`, `size_t`},
	"within":      {anAmount},
}

// shapeFault says what is wrong with a hook of the right form.
func (f Function) shapeFault() string {
	m := hookPattern.FindStringSubmatch(f.Hook)
	name, call := m[1], m[2]
	s, ok := shapes[name]
	if !ok {
		return fmt.Sprintf("hook %q: no shape is called so; there are %s", f.Hook, strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
	}
	if !slices.Contains(s.kinds, f.Kind) {
		return fmt.Sprintf("hook %q is for kind %s, not for %s", f.Hook, kindList(s.kinds), f.Kind)
	}
	if len(f.Takes) < len(s.first) || !slices.Equal(f.Takes[:len(s.first)], s.first) || s.only && len(f.Takes) > len(s.first) {
		return fmt.Sprintf("hook %q needs the parameters [%s]%s", f.Hook, strings.Join(s.first, ", "), map[bool]string{false: " first", true: " alone"}[s.only])
	}
	streams := 0
	for _, t := range f.Takes {
		if t == "CUstream" {
			streams++
		}
	}
	if s.stream && streams == 0 {
		return fmt.Sprintf("hook %q needs a parameter CUstream", f.Hook)
	}
	if streams > 1 {
		return fmt.Sprintf("hook %q: of %d parameters CUstream it is not clear which one counts", f.Hook, streams)
	}
	return f.callFault(s, call)
}

// callFault says what is wrong with the call in a hook, "" where there is none and needs to be none.
func (f Function) callFault(s shape, call string) string {
	name, arguments, _ := strings.Cut(strings.TrimSuffix(call, ")"), "(")
	if call == "" && len(s.calls) == 0 {
		return ""
	}
	if len(s.calls) == 0 {
		return fmt.Sprintf("hook %q takes nothing after its shape", f.Hook)
	}
	if !slices.Contains(s.calls, name) {
		return fmt.Sprintf("hook %q needs one of these after its shape: %s", f.Hook, strings.Join(s.calls, ", "))
	}
	var given []string
	if arguments != "" {
		given = strings.Split(arguments, ", ")
	}
	if len(given) != len(calls[name]) {
		return fmt.Sprintf("hook %q: %s takes %d arguments, not %d", f.Hook, name, len(calls[name]), len(given))
	}
	for i, argument := range given {
		have := argument
		if number, ok := strings.CutPrefix(argument, "a"); ok {
			if at := int(number[0] - '0'); at < len(f.Takes) {
				have = f.Takes[at]
			} else {
				return fmt.Sprintf("hook %q: there is no %s among %d parameters, the first of which is a0", f.Hook, argument, len(f.Takes))
			}
		}
		if !regexp.MustCompile(`^(?:` + calls[name][i] + `)$`).MatchString(have) {
			return fmt.Sprintf("hook %q: %s cannot take %s, which is %q, for argument %d", f.Hook, name, argument, have, i+1)
		}
	}
	return ""
}

func kindList(kinds []Kind) string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, " or ")
}
