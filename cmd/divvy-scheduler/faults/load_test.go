package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// lossLabel marks members of gangs that lost one, which need not be whole any more.
const lossLabel = "faults.test/lost"

// gangLabel has the name of a pod's gang, mayWait is on pods that need not ever get a node.
const (
	gangLabel = "faults.test/gang"
	mayWait   = "faults.test/may-wait"
)

// batch are pods that are made together, and the claims and templates that they need before.
type batch struct {
	pods      []*corev1.Pod
	claims    []*resourcev1.ResourceClaim
	templates []*resourcev1.ResourceClaimTemplate
}

// load makes pods of all kinds, the same ones for the same seed.
type load struct {
	*rand.Rand
	made int
}

// share is what a claim asks: so many GiB and cores of each of so many GPUs, or GPUs as a whole.
func share(gibibytes, cores, gpus int) resourcev1.ResourceClaimSpec {
	request := &resourcev1.ExactDeviceRequest{
		DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(gpus),
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: *resource.NewQuantity(int64(gibibytes)<<30, resource.BinarySI),
			v1alpha1.CapacityCores:  *resource.NewQuantity(int64(cores), resource.DecimalSI),
			v1alpha1.CapacitySlots:  *resource.NewQuantity(1, resource.DecimalSI),
		}},
	}
	if gibibytes == 0 {
		request.DeviceClassName, request.Capacity = v1alpha1.ClassWhole, nil
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: request}}}}
}

// name is one that no other pod has.
func (l *load) name(kind string) string {
	l.made++
	return fmt.Sprintf("%s-%06d", kind, l.made)
}

// asked is what a pod asks at random.
func (l *load) asked() resourcev1.ResourceClaimSpec {
	switch l.IntN(8) {
	case 0:
		return share(0, 0, 1+l.IntN(2))
	case 1:
		return share(8+l.IntN(24), 10+l.IntN(30), 2)
	default:
		return share(1+l.IntN(40), 1+l.IntN(50), 1)
	}
}

// next are the pods of the next kind.
func (l *load) next() batch {
	switch l.IntN(20) {
	case 0:
		return l.gang("gang", 2+l.IntN(6))
	case 1:
		b := l.gang(refused, 2+l.IntN(3))
		for i := 1; i < len(b.pods); i++ { // the claim of the first one alone is refused
			b.pods[i].Name = "beside-" + b.pods[i].Name
		}
		return b
	case 2:
		p := l.described(l.name(refused), l.asked())
		p.Labels[mayWait] = refused
		return batch{pods: []*corev1.Pod{p}}
	case 3:
		return l.byHand()
	case 4:
		return l.fromTemplate()
	case 5:
		return l.throughStock()
	default:
		return batch{pods: []*corev1.Pod{l.described(l.name("share"), l.asked())}}
	}
}

// gang are all members of one. They ask the same.
func (l *load) gang(kind string, size int) (b batch) {
	name, spec := l.name(kind), share(10+l.IntN(30), 10+l.IntN(20), 1)
	for i := range size {
		p := l.described(fmt.Sprintf("%s-%d", name, i), spec)
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = name, strconv.Itoa(size)
		p.Labels[gangLabel] = name
		if kind == refused {
			p.Labels[mayWait] = refused
		}
		b.pods = append(b.pods, p)
	}
	return b
}

// byHand is a claim that somebody made, which up to three pods use.
func (l *load) byHand() (b batch) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: l.name("by-hand"), Namespace: namespace}, Spec: l.asked()}
	b.claims = append(b.claims, claim)
	for i := range 1 + l.IntN(3) {
		b.pods = append(b.pods, l.using(fmt.Sprintf("%s-%d", claim.Name, i), corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim.Name}))
	}
	return b
}

// fromTemplate is a pod whose claim the controller manager makes.
func (l *load) fromTemplate() (b batch) {
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: l.name("template"), Namespace: namespace}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: l.asked()},
	}
	b.templates = append(b.templates, template)
	b.pods = append(b.pods, l.using(template.Name, corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template.Name}))
	return b
}

// throughStock is a pod by hand that the scheduler of Kubernetes is to place, which may not give Divvy's devices.
func (l *load) throughStock() batch {
	b := l.byHand()
	for _, p := range b.pods {
		p.Spec.SchedulerName = corev1.DefaultSchedulerName
		p.Labels[mayWait] = "stock"
	}
	return b
}

// described is a pod with a claim that the scheduler is to make.
func (l *load) described(name string, spec resourcev1.ResourceClaimSpec) *corev1.Pod {
	var random [v1alpha1.ClaimNameBytes]byte
	for i := range random {
		random[i] = byte(l.IntN(256))
	}
	claim := v1alpha1.ClaimName(random)
	text, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{claim: spec})
	p := l.using(name, corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim})
	if err == nil { // numbers and names can be written
		p.Annotations[v1alpha1.ClaimsAnnotation] = string(text)
	}
	return p
}

// using is a pod with one claim.
func (l *load) using(name string, claim corev1.PodResourceClaim) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, ResourceClaims: []corev1.PodResourceClaim{claim},
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}, Claims: []corev1.ResourceClaim{{Name: claim.Name}},
				},
			}},
		},
	}
}
