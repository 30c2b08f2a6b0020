package chart_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/test/chart/render"
	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is one of Kubernetes' kinds of CEL expression.
type expression struct {
	name, text string
	returns    []*celgo.Type
}

func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return e.returns }
func (e expression) GetName() string            { return e.name }

// policy is a ValidatingAdmissionPolicy, compiled as the API server does.
type policy struct {
	spec       admissionregistrationv1.ValidatingAdmissionPolicySpec
	conditions cel.ConditionEvaluator
	judges     cel.ConditionEvaluator
	messages   cel.ConditionEvaluator
}

func compile(t *testing.T, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) *policy {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	var none cel.OptionalVariableDeclarations
	for _, v := range spec.Variables {
		e := expression{name: v.Name, text: v.Expression, returns: []*celgo.Type{celgo.AnyType, celgo.DynType}}
		if result := compiler.CompileAndStoreVariable(e, none, environment.NewExpressions); result.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, result.Error)
		}
	}
	all := func(texts []string, returns *celgo.Type) cel.ConditionEvaluator {
		var expressions []cel.ExpressionAccessor
		for _, text := range texts {
			expressions = append(expressions, expression{text: text, returns: []*celgo.Type{returns}})
		}
		evaluator := compiler.CompileCondition(expressions, none, environment.NewExpressions)
		if faults := evaluator.CompilationErrors(); len(faults) > 0 {
			t.Fatal(faults)
		}
		return evaluator
	}
	var conditions, judges, messages []string
	for _, c := range spec.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	for _, v := range spec.Validations {
		judges = append(judges, v.Expression)
		message := v.MessageExpression
		if message == "" {
			message = fmt.Sprintf("%q", v.Message)
		}
		messages = append(messages, message)
	}
	return &policy{spec, all(conditions, celgo.BoolType), all(judges, celgo.BoolType), all(messages, celgo.StringType)}
}

// attempt is one request to the API server.
type attempt struct {
	user        string
	node        string // of the token
	operation   apiadmission.Operation
	subresource string
	old, new    runtime.Object
}

// refused returns why the policy refuses an attempt, or nothing.
func (p *policy) refused(t *testing.T, a attempt) string {
	t.Helper()
	one := a.new
	if one == nil {
		one = a.old
	}
	kind := one.GetObjectKind().GroupVersionKind()
	to := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	if a.subresource != "" && kind.Group != resourcev1.GroupName {
		to = corev1.SchemeGroupVersion.WithResource("pods")
	}
	extra := map[string][]string{}
	if a.node != "" {
		extra["authentication.kubernetes.io/node-name"] = []string{a.node}
	}
	record := apiadmission.NewAttributesRecord(a.new, a.old, kind, "ns", "name", to, a.subresource, a.operation, nil, false,
		&user.DefaultInfo{Name: a.user, Extra: extra})
	attributes := &apiadmission.VersionedAttributes{Attributes: record, VersionedObject: a.new, VersionedOldObject: a.old, VersionedKind: kind}
	request := cel.CreateAdmissionRequest(record, metav1.GroupVersionResource(to), metav1.GroupVersionKind(kind))
	evaluate := func(e cel.ConditionEvaluator) []cel.EvaluationResult {
		results, _, err := e.ForInput(context.Background(), attributes, request, cel.OptionalVariableBindings{}, nil, apiservercel.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for _, r := range evaluate(p.conditions) {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		if r.EvalResult.Value() != true {
			return ""
		}
	}
	var why []string
	messages := evaluate(p.messages)
	for i, r := range evaluate(p.judges) {
		if r.Error != nil {
			return "error: " + r.Error.Error()
		}
		if r.EvalResult.Value() != true {
			why = append(why, fmt.Sprint(messages[i].EvalResult.Value()))
		}
	}
	return strings.Join(why, "; ")
}

func policies(t *testing.T, documents []render.Document) map[string]*policy {
	t.Helper()
	all := make(map[string]*policy)
	for _, p := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](t, documents) {
		all[p.Name] = compile(t, p.Spec)
	}
	for _, b := range find[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, documents) {
		if all[b.Spec.PolicyName] == nil || !slices.Equal(b.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
			t.Errorf("binding %s binds nothing", b.Name)
		}
	}
	return all
}

const agent = "system:serviceaccount:divvy-system:divvy-agent"

func slice(node, driver string) runtime.Object {
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: node}}}
	if node != "" {
		s.Spec.NodeName = &node
	}
	s.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"))
	return s
}

// inPool is a slice in a pool of another name.
func inPool(of runtime.Object, pool string) runtime.Object {
	s := of.(*resourcev1.ResourceSlice)
	s.Spec.Pool.Name = pool
	return s
}

// reached is the slice of GPUs of a host that other nodes reach, in the pool of a node.
func reached(name, pool, host string) runtime.Object {
	s := slice("", v1alpha1.Driver).(*resourcev1.ResourceSlice)
	s.Name, s.Spec.Pool.Name, s.Spec.AllNodes = v1alpha1.RemoteSlice(name), v1alpha1.RemotePool(pool), new(true)
	s.Spec.Devices = []resourcev1.Device{{Name: "gpu-1-remote", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeHost: {StringValue: &host}}}}
	return s
}

func TestAgentsAreConfinedToSlicesOfTheirNode(t *testing.T) {
	p := policies(t, rendered(t, newest, ""))["divvy-agent-slices"]
	everyNode := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, AllNodes: new(bool)}}
	everyNode.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"))
	for _, c := range []struct {
		name string
		attempt
		want string
	}{
		{"its own", attempt{agent, "n1", apiadmission.Create, "", nil, slice("n1", v1alpha1.Driver)}, ""},
		{"its own again", attempt{agent, "n1", apiadmission.Update, "", slice("n1", v1alpha1.Driver), slice("n1", v1alpha1.Driver)}, ""},
		{"its own no more", attempt{agent, "n1", apiadmission.Delete, "", slice("n1", v1alpha1.Driver), nil}, ""},
		{"another's", attempt{agent, "n1", apiadmission.Create, "", nil, slice("n2", v1alpha1.Driver)}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"another's taken over", attempt{agent, "n1", apiadmission.Update, "", slice("n2", v1alpha1.Driver), slice("n1", v1alpha1.Driver)}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"another's deleted", attempt{agent, "n1", apiadmission.Delete, "", slice("n2", v1alpha1.Driver), nil}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"every node", attempt{agent, "n1", apiadmission.Create, "", nil, everyNode}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"its own in another's pool", attempt{agent, "n1", apiadmission.Create, "", nil, inPool(slice("n1", v1alpha1.Driver), "n2")}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"its own moved to another's pool", attempt{agent, "n1", apiadmission.Update, "", slice("n1", v1alpha1.Driver), inPool(slice("n1", v1alpha1.Driver), "n2")}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"another driver's", attempt{agent, "n1", apiadmission.Create, "", nil, slice("n1", "gpu.nvidia.com")}, "the agent may only write slices of the driver divvy.dev"},
		{"a token of no node", attempt{agent, "", apiadmission.Create, "", nil, slice("n1", v1alpha1.Driver)}, "the agent's token names no node; the agent of node  may only write slices of its own node, in its own pool"},
		{"reached by others", attempt{agent, "n1", apiadmission.Create, "", nil, reached("n1", "n1", "n1")}, ""},
		{"reached no more", attempt{agent, "n1", apiadmission.Delete, "", reached("n1", "n1", "n1"), nil}, ""},
		{"in another host's pool", attempt{agent, "n1", apiadmission.Create, "", nil, reached("n1", "n2", "n1")}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"a second slice", attempt{agent, "n1", apiadmission.Create, "", nil, reached("n2", "n1", "n1")}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"as another host", attempt{agent, "n1", apiadmission.Update, "", reached("n1", "n1", "n1"), reached("n1", "n1", "n2")}, "the agent of node n1 may only write slices of its own node, in its own pool"},
		{"no agent", attempt{"admin", "", apiadmission.Create, "", nil, slice("n2", "other")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.refused(t, c.attempt); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestControllerIsConfinedToSlicesThatOthersReach(t *testing.T) {
	p := policies(t, rendered(t, newest, ""))["divvy-controller-slices"]
	const controller = "system:serviceaccount:divvy-system:divvy-controller"
	const refusal = "the controller may only write slices of GPUs that other nodes reach"
	for _, c := range []struct {
		name string
		attempt
		want string
	}{
		{"a host's", attempt{controller, "", apiadmission.Update, "", reached("n1", "n1", "n1"), reached("n1", "n1", "n1")}, ""},
		{"a host's no more", attempt{controller, "", apiadmission.Delete, "", reached("n1", "n1", "n1"), nil}, ""},
		{"a node's", attempt{controller, "", apiadmission.Update, "", slice("n1", v1alpha1.Driver), slice("n1", v1alpha1.Driver)}, refusal},
		{"a node's no more", attempt{controller, "", apiadmission.Delete, "", slice("n1", v1alpha1.Driver), nil}, refusal},
		{"another driver's", attempt{controller, "", apiadmission.Delete, "", slice("n1", "gpu.nvidia.com"), nil}, refusal},
		{"an agent", attempt{agent, "n1", apiadmission.Update, "", slice("n1", v1alpha1.Driver), slice("n1", v1alpha1.Driver)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.refused(t, c.attempt); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestAssignmentsAreTheBinders(t *testing.T) {
	p := policies(t, rendered(t, oldest, `slots: {binders: ["system:serviceaccount:here:binder"]}`))["divvy-assignments"]
	const written = "divvy.dev/assignment is written by the scheduler when it binds a pod, and by nobody else"
	const stays = "divvy.dev/assignment and divvy.dev/request stay as they are while the pod lives"
	const asked = "a Binding says which GPU a pod gets, and not what it asked for"
	pod := func(annotations ...string) runtime.Object {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		for i := 0; i < len(annotations); i += 2 {
			pod.Annotations["divvy.dev/"+annotations[i]] = annotations[i+1]
		}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return pod
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{v1alpha1.AssignmentAnnotation: "x"}}, Target: corev1.ObjectReference{Name: "n1"}}
	binding.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Binding"))
	bare := binding.DeepCopy()
	bare.Annotations = nil
	saying := func(name, value string) runtime.Object {
		b := binding.DeepCopy()
		b.Annotations[name] = value
		return b
	}
	slotted := func(privileged bool, annotations ...string) runtime.Object {
		pod := pod(annotations...).(*corev1.Pod)
		one := resource.MustParse("1")
		pod.Spec.Containers = []corev1.Container{
			{Name: "share", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.SlotResource: one}}},
			{Name: "other", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}},
		}
		return pod
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	eviction.SetGroupVersionKind(policyv1.SchemeGroupVersion.WithKind("Eviction"))
	for _, c := range []struct {
		name string
		attempt
		want string
	}{
		{"a pod", attempt{"user", "", apiadmission.Create, "", nil, pod("request", "x")}, ""},
		{"a pod that assigns itself", attempt{"user", "", apiadmission.Create, "", nil, pod("assignment", "x")}, written},
		{"even by a binder", attempt{"system:kube-scheduler", "", apiadmission.Create, "", nil, pod("assignment", "x")}, written},
		{"a binding", attempt{"user", "", apiadmission.Create, "binding", nil, bare}, ""},
		{"a binding that assigns", attempt{"user", "", apiadmission.Create, "binding", nil, binding}, written},
		{"the old form", attempt{"user", "", apiadmission.Create, "", nil, binding}, written},
		{"kube-scheduler, for which the extender binds", attempt{"system:kube-scheduler", "", apiadmission.Create, "binding", nil, binding}, written},
		{"a scheduler of this namespace", attempt{"system:serviceaccount:divvy-system:divvy-scheduler", "", apiadmission.Create, "binding", nil, binding}, ""},
		{"one that was named", attempt{"system:serviceaccount:here:binder", "", apiadmission.Create, "binding", nil, binding}, ""},
		{"a binding that asks for more", attempt{"system:serviceaccount:here:binder", "", apiadmission.Create, "binding", nil, saying(v1alpha1.RequestAnnotation, "y")}, asked},
		{"a binding that says what is not ours", attempt{"system:serviceaccount:here:binder", "", apiadmission.Create, "binding", nil, saying("example.com/rack", "7")}, ""},
		{"status", attempt{"system:node:n1", "n1", apiadmission.Update, "status", pod("assignment", "x"), pod("assignment", "x")}, ""},
		{"another assignment by the status", attempt{"user", "", apiadmission.Update, "status", pod("assignment", "x"), pod("assignment", "y")}, stays},
		{"assigned later", attempt{"user", "", apiadmission.Update, "", pod("request", "x"), pod("request", "x", "assignment", "y")}, stays},
		{"another request", attempt{"user", "", apiadmission.Update, "", pod("request", "x"), pod("request", "y")}, stays},
		{"no request", attempt{"user", "", apiadmission.Update, "", pod("request", "x"), pod()}, stays},
		{"an eviction", attempt{"user", "", apiadmission.Create, "eviction", nil, eviction}, ""},
		{"a slot", attempt{"user", "", apiadmission.Create, "", nil, slotted(false, "request", "x")}, ""},
		{"a slot by hand", attempt{"user", "", apiadmission.Create, "", nil, slotted(false)}, "divvy.dev/shares is counted by Divvy, so ask for divvy.dev/gpu-memory or divvy.dev/gpu"},
		{"privilege beside a share", attempt{"user", "", apiadmission.Create, "", nil, slotted(true, "request", "x")}, "a privileged container reaches every GPU of its node, so that no share would hold beside it"},
		{"a scheduler, later", attempt{"system:kube-scheduler", "", apiadmission.Update, "", pod("assignment", "x"), pod()}, stays},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := p.refused(t, c.attempt); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if all := policies(t, rendered(t, newest, "")); all["divvy-assignments"] != nil {
		t.Error("a policy about assignments where claims are used")
	}
}

// What the chart says to the agent is what the agent reads.
func TestAgentConfigurationIsRead(t *testing.T) {
	for value, want := range map[string]agentconfig.Outside{
		"": agentconfig.OutsideReport, "agent: {outside: stop}": agentconfig.OutsideStop, "agent: {outside: kill}": agentconfig.OutsideKill,
	} {
		text := configured(t, rendered(t, newest, value), "agent.yaml")
		config, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
		if err != nil || config.Outside() != want {
			t.Errorf("%q: %v, %v\n%s", value, config.Outside(), err, text)
		}
	}
	text := configured(t, rendered(t, newest, "agent: {backends: {mps: [0], timeslice: [1]}}"), "agent.yaml")
	config, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text = configured(t, rendered(t, newest, "agent: {history: {days: 30, size: 32Mi, commands: none}}"), "agent.yaml")
	kept, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
	if want := (agentconfig.History{Days: 30, Bytes: 32 << 20, Commands: agentconfig.CommandsNone}); err != nil || kept.History() != want {
		t.Errorf("%v: %+v\n%s", err, kept.History(), text)
	}
	text = configured(t, rendered(t, newest, "agent: {backends: {passthrough: [0000:3b:00.0], vf: {gpus: all}, vgpu: {gpus: [\"0000:5e:00.0\"], type: 471, replicas: 4}}}"), "agent.yaml")
	offering, err := agentconfig.Parse("agent.yaml", []byte(text), nil)
	if offers := offering.Lendings(); err != nil || len(offers) != 3 || offers[0].Address.String() != "0000:3b:00.0" || !offers[1].Every || offers[2].Type != "471" || offers[2].Replicas != 4 {
		t.Errorf("%v: %+v\n%s", err, offers, text)
	}
	for index, want := range []v1alpha1.Backend{v1alpha1.BackendMPS, v1alpha1.BackendTimeslice, v1alpha1.BackendSlice} {
		if got, ok := config.Backend(agentconfig.GPU{Index: index}); got != want || !ok {
			t.Errorf("GPU %d is given %q, want %q", index, got, want)
		}
	}
}
