package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const scheduled = "scheduler: {users: ['system:serviceaccount:divvy-system:divvy-scheduler']}\n"

// newScheduled is newTranslator where Divvy's scheduler runs.
func newScheduled(t testing.TB, dialects string) *Translator {
	t.Helper()
	translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\n" + scheduled + "dialects: " + dialects))
	if err != nil {
		t.Fatal(err)
	}
	return translator
}

// numbered is an inventory that gives claims names in turn.
func numbered(inventory Inventory) Inventory {
	n := byte(0)
	inventory.Name = func() string {
		n++
		return v1alpha1.ClaimName([v1alpha1.ClaimNameBytes]byte{n})
	}
	return inventory
}

// described translates a pod for Divvy's scheduler, and applies the patch with what the pod carries.
func described(t testing.TB, translator *Translator, pod *corev1.Pod, inventory Inventory) (*corev1.Pod, Translation, error) {
	t.Helper()
	made, err := translator.Translate(pod, inventory)
	if err != nil {
		return nil, made, err
	}
	if err := made.Carry(pod); err != nil {
		return nil, made, err
	}
	return apply(t, pod, made.Patch), made, nil
}

// contents are what the claims that a translation added hold, in the order of the pod.
func contents(t testing.TB, pod *corev1.Pod, own int, templates []resourcev1.ResourceClaimTemplate) []string {
	t.Helper()
	specs, err := Described(pod)
	if err != nil {
		t.Fatal(err)
	}
	for i := range templates {
		if specs == nil {
			specs = make(map[string]resourcev1.ResourceClaimSpec)
		}
		specs[templates[i].Name] = templates[i].Spec.Spec
	}
	var all []string
	for _, c := range pod.Spec.ResourceClaims[own:] {
		name := c.ResourceClaimName
		if name == nil {
			name = c.ResourceClaimTemplateName
		}
		spec, ok := specs[*name]
		if !ok {
			t.Fatalf("nothing says what claim %s holds", *name)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.Name+" "+string(text))
	}
	return all
}

// TestSchedulersPods has pods ask in every dialect: one that names no scheduler, or the one of a dialect, becomes a pod of
// Divvy's scheduler, and its claims hold what templates would.
func TestSchedulersPods(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	const dialects = "{plain: {}, hami: {}, kai: {}, koordinator: {}, vgpu-manager: {}, volcano: {}, gpushare: {}, qgpu: {}}"
	ours, stock := newScheduled(t, dialects), newTranslator(t, dialects)
	changed, left := 0, 0
	for i := range 4000 {
		choices := make([]byte, 3*random.Intn(6))
		random.Read(choices)
		text := hostileText(choices)
		if i < len(hostilePods) {
			text = hostilePods[i]
		}
		pod := hostilePod(text)
		if pod == nil {
			continue
		}
		switch scheduler := &pod.Spec.SchedulerName; {
		case i%7 == 0:
			*scheduler = "theirs"
		case *scheduler != "kai-scheduler" && *scheduler != "hami-scheduler":
			*scheduler = ""
		}
		want, wantErr := stock.Translate(pod, sixteenForty)
		got, made, err := described(t, ours, pod, numbered(sixteenForty))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s\nby templates %v, by claims %v", text, wantErr, err)
		}
		if err != nil || len(want.Patch) == 0 {
			continue
		}
		byTemplates := apply(t, pod, want.Patch)
		one, other := contents(t, got, len(pod.Spec.ResourceClaims), made.Templates), contents(t, byTemplates, len(pod.Spec.ResourceClaims), want.Templates)
		if !slices.Equal(one, other) {
			t.Fatalf("%s\nby claims    %s\nby templates %s", text, one, other)
		}
		changed++
		checkScheduled(t, pod, got, made)
		if pod.Spec.SchedulerName == "theirs" {
			left++
		}
		again, err := ours.Translate(got, numbered(sixteenForty))
		if err != nil || len(again.Patch) > 0 {
			t.Fatalf("a pod that was translated becomes %v, %v", again, err)
		}
	}
	if changed < 100 || left < 10 {
		t.Errorf("only %d pods asked, and %d were left to their schedulers", changed, left)
	}
}

// checkScheduled checks whose pod a translated one is.
func checkScheduled(t *testing.T, pod, got *corev1.Pod, made Translation) {
	t.Helper()
	if pod.Spec.SchedulerName == "theirs" {
		if got.Spec.SchedulerName != "theirs" || len(made.Described) > 0 || got.Annotations[v1alpha1.ClaimsAnnotation] != "" {
			t.Errorf("a pod that names its scheduler becomes one of %s with claims %v", got.Spec.SchedulerName, made.Described)
		}
		return
	}
	if got.Spec.SchedulerName != v1alpha1.SchedulerName || len(made.Templates) > 0 {
		t.Errorf("a pod of %q becomes one of %q with %d templates", pod.Spec.SchedulerName, got.Spec.SchedulerName, len(made.Templates))
	}
	names := make(map[string]bool)
	for _, c := range got.Spec.ResourceClaims[len(pod.Spec.ResourceClaims):] {
		if c.ResourceClaimName == nil || c.ResourceClaimTemplateName != nil || !v1alpha1.IsClaimName(*c.ResourceClaimName) || names[*c.ResourceClaimName] {
			t.Fatalf("claim %+v", c)
		}
		names[*c.ResourceClaimName] = true
	}
}

// TestWhoseScheduler says for each scheduler of a pod whose pod it becomes, under each name of Divvy's.
func TestWhoseScheduler(t *testing.T) {
	for _, c := range []struct{ config, scheduler, want string }{
		{scheduled, "", "divvy-scheduler claims"},
		{scheduled, "default-scheduler", "divvy-scheduler claims"},
		{scheduled, "divvy-scheduler", "divvy-scheduler claims"},
		{scheduled, "hami-scheduler", "divvy-scheduler claims"},
		{scheduled, "koord-scheduler", "divvy-scheduler claims"},
		{scheduled, "theirs", "theirs templates"},
		{scheduled, "volcano", "volcano templates"}, // whose dialect is off
		{scheduled + "schedulerName: default-scheduler\n", "", "default-scheduler claims"},
		{scheduled + "schedulerName: default-scheduler\n", "hami-scheduler", "default-scheduler claims"},
		{scheduled + "schedulerName: default-scheduler\n", "divvy-scheduler", "divvy-scheduler templates"},
		{"", "", " templates"},
		{"", "divvy-scheduler", "divvy-scheduler templates"},
		{"", "hami-scheduler", "default-scheduler templates"},
		{"schedulerName: kept\n", "default-scheduler", "default-scheduler templates"},
	} {
		translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\n" + c.config + "dialects: {hami: {}}"))
		if err != nil {
			t.Fatal(err)
		}
		pod := limitsOf(t, "nvidia.com/gpumem: 300")
		pod.Spec.SchedulerName = c.scheduler
		got, made, err := described(t, translator, pod, numbered(sixteen))
		if err != nil {
			t.Fatal(err)
		}
		by := "templates"
		if len(made.Described) > 0 {
			by = "claims"
		}
		if was := got.Spec.SchedulerName + " " + by; was != c.want {
			t.Errorf("%q under %q: %s, want %s", c.scheduler, c.config, was, c.want)
		}
	}
}

// TestDescribedByACopy has something add a container to a translated pod: what it described before stays.
func TestDescribedByACopy(t *testing.T) {
	translator := newScheduled(t, "{plain: {}}")
	names := numbered(sixteen)
	pod, _, err := described(t, translator, limitsOf(t, "divvy.dev/gpu-memory: 1Gi"), names)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := Described(pod)
	more := limitsOf(t, "divvy.dev/gpu-memory: 2Gi").Spec.Containers[0]
	more.Name = "more"
	pod.Spec.Containers = append(pod.Spec.Containers, more)
	again, _, err := described(t, translator, pod, names)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Described(again)
	if err != nil || len(after) != 2 {
		t.Fatalf("%v, %v", after, err)
	}
	for name := range before {
		if !reflect.DeepEqual(before[name], after[name]) {
			t.Errorf("claim %s was %v and is %v", name, before[name], after[name])
		}
	}
}

// TestTooMuchToDescribe has pods ask for more than an annotation takes.
func TestTooMuchToDescribe(t *testing.T) {
	var sizes []uint64
	for i := range 8 {
		sizes = append(sizes, uint64(10+i)<<30)
	}
	translator := newScheduled(t, "{plain: {}}")
	ask := func(n int, limit string) error {
		pod := &corev1.Pod{}
		for i := range n {
			c := limitsOf(t, limit).Spec.Containers[0]
			c.Name = fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		_, _, err := described(t, translator, pod, numbered(Inventory{Sizes: sizes}))
		return err
	}
	for _, c := range []struct {
		n           int
		limit, want string
	}{
		{MostContainers, "divvy.dev/gpu-memory: 1Gi", ""},
		{MostContainers + 1, "divvy.dev/gpu-memory: 1Gi", "65 containers of the pod ask for GPUs"},
		{16, "divvy.dev/gpu-memory-percent: 50", ""},
		{MostContainers, "divvy.dev/gpu-memory-percent: 50", "ask for amounts of memory instead of parts"},
	} {
		err := ask(c.n, c.limit)
		if (c.want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d times %s: %v", c.n, c.limit, err)
		}
	}
}

// TestForgedDescriptions changes what a translation wrote.
func TestForgedDescriptions(t *testing.T) {
	pod, _, err := described(t, newScheduled(t, "{plain: {}}"), limitsOf(t, "divvy.dev/gpu-memory: 1Gi", "divvy.dev/gpu-cores: 30"), numbered(sixteen))
	if err != nil {
		t.Fatal(err)
	}
	text := pod.Annotations[v1alpha1.ClaimsAnnotation]
	name := *pod.Spec.ResourceClaims[0].ResourceClaimName
	replaced := func(a, b string) string {
		t.Helper()
		if !strings.Contains(text, a) {
			t.Fatalf("%q is not in %s", a, text)
		}
		return strings.Replace(text, a, b, 1)
	}
	for forged, want := range map[string]string{
		"": "does not read", "[]": "does not read", "{": "does not read", "{}": "never describes 0", "null": "never describes 0",
		`{"a":1}`: "does not read", text + strings.Repeat(" ", longestCarried): "never as long",
		replaced(name, "divvy-"+strings.Repeat("a", 15)+"1"):                                                        "never calls a claim",
		replaced(name, v1alpha1.ClaimName([10]byte{9})):                                                             "describes claims that the pod names",
		replaced(`"devices":`, `"x":1,"devices":`):                                                                  "unknown field",
		replaced(`"devices":`, `"devices":{},"devices":`):                                                           "does not read",
		replaced(`"count":1`, `"count":1,"adminAccess":true`):                                                       "admin access",
		replaced(`"count":1`, `"count":1,"adminAccess":false`):                                                      "admin access",
		replaced(`"count":1`, `"count":1,"tolerations":[{"operator":"Exists"}]`):                                    "tolerates",
		replaced(`"count":1`, `"count":33`):                                                                         "33 devices",
		replaced(`"count":1`, `"count":0`):                                                                          "0 devices",
		replaced(`"ExactCount"`, `"All"`):                                                                           "mode All",
		replaced(`"share.divvy.dev"`, `"nic.example.com"`):                                                          "none of Divvy's",
		replaced(`"share.divvy.dev"`, `"gpu.divvy.dev"`):                                                            "takes one slot",
		replaced(`"1Gi"`, `"9E"`):                                                                                   "amount of memory",
		replaced(`"1Gi"`, `"1"`):                                                                                    "multiple of 1Mi",
		replaced(`"30"`, `"130"`):                                                                                   "cores 130",
		replaced(`"slots":"1"`, `"slots":"2"`):                                                                      "slots 2",
		replaced(`"slots":"1"`, `"slots":"1","nics":"1"`):                                                           "nics",
		replaced(`"count":1`, `"count":1,"selectors":[{"cel":{"expression":"true"}}]`):                              "selector that no dialect",
		replaced(`"requests":[`, `"constraints":[{"matchAttribute":"divvy.dev/uuid"}],"requests":[`):                "constraint that no dialect",
		replaced(`"requests":[`, `"config":[{"opaque":{"driver":"nic.example.com","parameters":{}}}],"requests":[`): "configuration that no dialect",
		replaced(`"requests":[`, `"config":[{"requests":["gpu"],"opaque":{"driver":"divvy.dev","parameters":{}}}],"requests":[`):                       "configuration 0",
		replaced(`"requests":[`, `"requests":[{"name":"more","exactly":{"deviceClassName":"gpu.divvy.dev","allocationMode":"ExactCount","count":1}},`): "2 requests",
		replaced(`"name":"gpu"`, `"name":"other"`): "1 requests instead of one",
	} {
		pod.Annotations[v1alpha1.ClaimsAnnotation] = forged
		got, err := Described(pod)
		if !errors.Is(err, ErrRefused) || !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "\n") || got != nil {
			t.Errorf("%.300s:\n%v, %v\nwant %s", forged, got, err, want)
		}
		// Nothing is translated on top of it.
		pod.Spec.Containers[0].Resources.Limits = limitsOf(t, "divvy.dev/gpu: 1").Spec.Containers[0].Resources.Limits
		pod.Spec.Containers[0].Resources.Claims = nil
		if _, _, err := described(t, newScheduled(t, "{plain: {}}"), pod, numbered(sixteen)); !errors.Is(err, ErrRefused) {
			t.Errorf("%.300s is translated: %v", forged, err)
		}
	}
	pod.Annotations[v1alpha1.ClaimsAnnotation] = text
	if got, err := Described(pod); len(got) != 1 || err != nil {
		t.Errorf("what was written: %v, %v", got, err)
	}
	delete(pod.Annotations, v1alpha1.ClaimsAnnotation)
	if got, err := Described(pod); got != nil || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
}

// TestClaimFields fails when Kubernetes gives claims another field: CheckTranslated must say what it may hold.
func TestClaimFields(t *testing.T) {
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[resourcev1.ResourceClaimSpec]():         "Devices",
		reflect.TypeFor[resourcev1.DeviceClaim]():               "Requests Constraints Config",
		reflect.TypeFor[resourcev1.DeviceRequest]():             "Name Exactly FirstAvailable",
		reflect.TypeFor[resourcev1.ExactDeviceRequest]():        "DeviceClassName Selectors AllocationMode Count AdminAccess Tolerations Capacity",
		reflect.TypeFor[resourcev1.DeviceSubRequest]():          "Name DeviceClassName Selectors AllocationMode Count Tolerations Capacity",
		reflect.TypeFor[resourcev1.DeviceSelector]():            "CEL",
		reflect.TypeFor[resourcev1.CELDeviceSelector]():         "Expression",
		reflect.TypeFor[resourcev1.CapacityRequirements]():      "Requests",
		reflect.TypeFor[resourcev1.DeviceConstraint]():          "Requests MatchAttribute DistinctAttribute",
		reflect.TypeFor[resourcev1.DeviceClaimConfiguration]():  "Requests DeviceConfiguration",
		reflect.TypeFor[resourcev1.OpaqueDeviceConfiguration](): "Driver Parameters",
	} {
		var names []string
		for _, f := range reflect.VisibleFields(of) {
			if len(f.Index) == 1 {
				names = append(names, f.Name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%v has the fields %s", of, got)
		}
	}
}

// FuzzDescribed reads foreign annotations: what is accepted is within what a translation asks, and reads the same again.
func FuzzDescribed(f *testing.F) {
	pod, _, err := described(f, newScheduled(f, "{plain: {}}"), limitsOf(f, "divvy.dev/gpu-memory: 1Gi"), numbered(sixteen))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pod.Annotations[v1alpha1.ClaimsAnnotation])
	f.Add(`{"divvy-aeaaaaaaaaaaaaaa":{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.divvy.dev","allocationMode":"ExactCount","count":1}}]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		pod.Annotations = map[string]string{v1alpha1.ClaimsAnnotation: text}
		specs, err := Described(pod)
		if err != nil {
			if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%q is not a refusal of one line", err)
			}
			return
		}
		for name, spec := range specs {
			if !v1alpha1.IsClaimName(name) || CheckTranslated(&spec) != nil || !(Classes{}).Concerns(&spec) {
				t.Errorf("%s: %+v", name, spec)
			}
			for _, a := range requestsOf(&spec) {
				if a.admin || a.count < 1 || a.count > MaxGPUs {
					t.Errorf("%s: %+v", name, a)
				}
			}
		}
	})
}
