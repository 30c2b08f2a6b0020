package dialect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Translator translates pods by the dialects that are turned on.
type Translator struct {
	mode      string
	dialects  []Dialect
	scheduler string
	maxWeight int // 0 is no limit
	kernels   v1alpha1.Kernels
	classes   Classes
	// makers are the users as which Divvy's scheduler makes claims; none where it does not run.
	makers []string
	// binders are the users who bind pods to GPUs in mode slots.
	binders []string
	// queues is true where Divvy's scheduler serves queues.
	queues bool
}

// Classes says which device classes are Divvy's.
func (t *Translator) Classes() Classes { return t.classes }

// Match reports whether the pod asks in any dialect that is turned on; others are left as they are.
func (t *Translator) Match(pod *corev1.Pod) bool {
	return slices.ContainsFunc(t.dialects, func(d Dialect) bool { return d.Match(pod) })
}

// Translation is what makes a pod ask by claims, or by slots.
type Translation struct {
	// Patch changes the pod. It is empty for a pod that is left as it is.
	Patch Patch
	// Templates are those that the pod's claims are made from, each once.
	Templates []resourcev1.ResourceClaimTemplate
	// Described are the claims of a pod that Divvy's scheduler is to place, by their names. It makes them when it binds the
	// pod, and there are no templates.
	Described map[string]resourcev1.ResourceClaimSpec
	// Warnings are for whoever creates the pod, one line each.
	Warnings []string
	// Claims holds the name of the template of each claim that the patch adds; claims of one template repeat it.
	Claims []string
}

// Translate translates a pod. The result is empty for a pod that asks in no dialect, a patched one included. An error
// wraps [ErrRefused] and is one line for whoever wrote the pod. The pod is not changed.
func (t *Translator) Translate(pod *corev1.Pod, inventory Inventory) (Translation, error) {
	spoken, requests, err := t.ask(pod, inventory)
	if err != nil || len(requests) == 0 {
		return Translation{}, err
	}
	if len(requests) > MostContainers {
		return Translation{}, refuse("%d containers of the pod ask for GPUs, more than the %d that may in one pod: use several pods", len(requests), MostContainers)
	}
	if err := t.check(pod, requests, inventory); err != nil {
		return Translation{}, err
	}
	if t.mode == ModeSlots {
		patch, err := t.slots(pod, spoken, requests, inventory)
		return Translation{Patch: patch}, err
	}
	claims := arrange(pod, requests)
	made, err := t.makeClaims(pod, claims, inventory)
	if err != nil {
		return Translation{}, err
	}
	labels, warnings, err := t.queued(pod, inventory.Queues)
	if err != nil {
		return Translation{}, err
	}
	made.Warnings = append(made.Warnings, warnings...)
	made.Patch = t.patch(pod, spoken, claims, inventory)
	made.Patch.label(pod, labels)
	for i := range claims {
		if warning := shortfall(claims[i].request, inventory, claims[i].request.Container.of(pod).Name); warning != "" {
			made.Warnings = append(made.Warnings, warning)
		}
	}
	return made, nil
}

// makeClaims says what the claims of a pod hold and how the pod names them: one by one where Divvy's scheduler makes them,
// and by templates otherwise.
func (t *Translator) makeClaims(pod *corev1.Pod, claims []claim, inventory Inventory) (Translation, error) {
	var made Translation
	var err error
	if t.places(pod) {
		made.Described, err = describeClaims(pod, claims, inventory)
	} else {
		made.Templates, err = makeTemplates(pod, claims, inventory)
	}
	if err != nil {
		return made, err
	}
	for i := range made.Templates {
		if err := t.CheckWeights(&made.Templates[i].Spec.Spec); err != nil {
			return made, err
		}
	}
	for i := range claims {
		if spec, ok := made.Described[claims[i].made]; ok {
			if err := t.CheckWeights(&spec); err != nil {
				return made, err
			}
			continue
		}
		made.Claims = append(made.Claims, claims[i].template)
	}
	return made, nil
}

// check refuses requests that a pod of this kind cannot have.
func (t *Translator) check(pod *corev1.Pod, requests []Request, inventory Inventory) error {
	if pod.Spec.NodeName != "" {
		return refuseNode(pod)
	}
	if err := t.checkLeaving(pod); err != nil {
		return err
	}
	if err := t.checkWished(pod); err != nil {
		return err
	}
	if kernel := t.OwnKernel(pod, inventory.Handlers); kernel != "" && slices.ContainsFunc(requests, func(r Request) bool { return !r.Whole || t.mode == ModeSlots }) {
		return refuseKernel(kernel)
	}
	for i := range requests {
		if err := requests[i].checkUnit(pod, inventory); err != nil {
			return err
		}
	}
	return inventory.checkRanges(pod, requests)
}

func refuseNode(pod *corev1.Pod) error {
	return refuse("the pod names its node %q, so that nothing would allocate its GPU: use a node selector", pod.Spec.NodeName)
}

// OwnKernel names the runtime class of a pod if its containers run on a kernel of their own, and is empty otherwise.
// Handlers are those of the RuntimeClasses that are known, by their names.
func (t *Translator) OwnKernel(pod *corev1.Pod, handlers map[string]string) string {
	class := pod.Spec.RuntimeClassName
	if class == nil {
		return ""
	}
	return t.kernels.Own(class, handlers[*class])
}

// spoken is a dialect and the containers that asked in it.
type spoken struct {
	names Names
	in    []ContainerRef
}

// ask gathers the requests of all dialects in the order of the containers.
func (t *Translator) ask(pod *corev1.Pod, inventory Inventory) ([]spoken, []Request, error) {
	var all []Request
	var by []spoken
	language := make(map[ContainerRef]Dialect)
	for _, dialect := range t.dialects {
		if !dialect.Match(pod) {
			continue
		}
		requests, err := dialect.Translate(pod)
		if err != nil {
			return nil, nil, err
		}
		if err := t.chooseBackend(pod, requests); err != nil {
			return nil, nil, err
		}
		if err := t.chooseSwap(pod, requests); err != nil {
			return nil, nil, err
		}
		s := spoken{names: dialect.Owns()}
		for i := range requests {
			ref := requests[i].Container
			if other, ok := language[ref]; ok {
				return nil, nil, refuse("container %q asks for GPUs in two dialects, %s and %s: use one%s", ref.of(pod).Name, other.Name(), dialect.Name(),
					inventory.defaulted(ref.of(pod), other.Owns(), dialect.Owns()))
			}
			language[ref] = dialect
			if err := requests[i].settle(pod); err != nil {
				return nil, nil, err
			}
			s.in = append(s.in, ref)
		}
		by = append(by, s)
		all = append(all, requests...)
	}
	slices.SortFunc(all, func(a, b Request) int { return a.Container.compare(b.Container) })
	return by, all, t.choosePairs(pod, all)
}
