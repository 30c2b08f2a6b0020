// Package contract tells which of Kubernetes' internals have changed that the scheduler's adapter replaces. It imports nothing of
// the adapter, so that it still builds when the adapter does not.
package contract

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
)

const program = "../program"

// The adapter replaces three fields of Kubernetes' scheduler, and uses some more.
func TestFields(t *testing.T) {
	for _, field := range []struct{ name, want string }{
		{"NextPod", "func(logr.Logger) (*framework.QueuedPodInfo, error)"},
		{"SchedulePod", "func(context.Context, framework.Framework, framework.CycleState, *framework.QueuedPodInfo) (scheduler.ScheduleResult, error)"},
		{"FailureHandler", "scheduler.FailureHandlerFn"},
		{"SchedulingQueue", "queue.SchedulingQueue"},
		{"Profiles", "profile.Map"},
	} {
		found, ok := reflect.TypeFor[kubescheduler.Scheduler]().FieldByName(field.name)
		if !ok {
			t.Errorf("Kubernetes' Scheduler has no field %s any more: %s/adapter.go replaces or uses it", field.name, program)
		} else if got := found.Type.String(); got != field.want {
			t.Errorf("field %s of Kubernetes' Scheduler is a %s, and was a %s: change %s/adapter.go", field.name, got, field.want, program)
		}
	}
	const handler = "func(context.Context, framework.Framework, *framework.QueuedPodInfo, *framework.Status, *framework.NominatingInfo, time.Time)"
	if got := underlying(reflect.TypeFor[kubescheduler.FailureHandlerFn]()); got != handler {
		t.Errorf("FailureHandler is a %s, and was a %s: change %s/adapter.go", got, handler, program)
	}
	var fields []string
	for result, i := reflect.TypeFor[kubescheduler.ScheduleResult](), 0; i < result.NumField(); i++ {
		fields = append(fields, result.Field(i).Name)
	}
	if want := []string{"SuggestedHost", "EvaluatedNodes", "FeasibleNodes", "nominatingInfo"}; !reflect.DeepEqual(fields, want) {
		t.Errorf("ScheduleResult has %v, and had %v: look what the adapter should tell", fields, want)
	}
}

// underlying is a function's type without its name.
func underlying(t reflect.Type) string {
	var in, out []reflect.Type
	for i := range t.NumIn() {
		in = append(in, t.In(i))
	}
	for i := range t.NumOut() {
		out = append(out, t.Out(i))
	}
	return reflect.FuncOf(in, out, t.IsVariadic()).String()
}

// Divvy's plugin embeds DynamicResources: an extension point that this gains would be passed through without a thought for
// pods that Divvy places.
func TestExtensionPoints(t *testing.T) {
	wrapped := reflect.TypeFor[*dynamicresources.DynamicResources]()
	for _, point := range []struct {
		of   reflect.Type
		want bool
	}{
		{reflect.TypeFor[fwk.PreEnqueuePlugin](), true},
		{reflect.TypeFor[fwk.EnqueueExtensions](), true},
		{reflect.TypeFor[fwk.PreFilterPlugin](), true},
		{reflect.TypeFor[fwk.FilterPlugin](), true},
		{reflect.TypeFor[fwk.PostFilterPlugin](), true},
		{reflect.TypeFor[fwk.ScorePlugin](), true},
		{reflect.TypeFor[fwk.ReservePlugin](), true},
		{reflect.TypeFor[fwk.PreBindPlugin](), true},
		{reflect.TypeFor[fwk.SignPlugin](), true},
		{reflect.TypeFor[fwk.QueueSortPlugin](), false},
		{reflect.TypeFor[fwk.PreScorePlugin](), false},
		{reflect.TypeFor[fwk.PermitPlugin](), false},
		{reflect.TypeFor[fwk.BindPlugin](), false},
		{reflect.TypeFor[fwk.PostBindPlugin](), false},
		{reflect.TypeFor[fwk.PlacementGeneratePlugin](), false},
		{reflect.TypeFor[fwk.PlacementScorePlugin](), false},
	} {
		if got := wrapped.Implements(point.of); got != point.want {
			t.Errorf("DynamicResources of Kubernetes is a %s: %v, and it was %v: look what %s/plugin.go has to do there", point.of, got, point.want, program)
		}
	}
}

// What knows Kubernetes' internals stays small.
func TestAdapterIsSmall(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(program, "adapter.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 400 {
		t.Errorf("adapter.go has %d lines, and 400 at most", n)
	}
}
