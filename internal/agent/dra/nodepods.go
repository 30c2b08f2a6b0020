package dra

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// nodePods are the node's pods that have not ended, as far as they are known.
type nodePods interface {
	// known reports whether all of them are known. Nothing can be concluded from a pod that is missing before.
	known() bool
	// users are the pods that name a claim.
	users(namespace, claim string) []*corev1.Pod
	// named is the pod of a name, nil if there is none.
	named(namespace, name string) *corev1.Pod
	// lives reports whether the pod with a UID is there.
	lives(uid types.UID) bool
	// all are all of them.
	all() []*corev1.Pod
}

// podWatch knows the node's pods by one watch, which asks the API server for nothing while no pod changes.
type podWatch struct {
	informer cache.SharedIndexInformer
	// ended has room for one: a pod has ended or is gone, or all pods are known now.
	ended chan struct{}
}

// The indexes of the pods.
const (
	byClaim = "claim"
	byUID   = "uid"
)

func watchPods(client kubernetes.Interface, node string) (*podWatch, error) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	w := &podWatch{
		informer: coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{byClaim: claimsOfPod, byUID: uidOfPod}, only),
		ended:    make(chan struct{}, 1),
	}
	if err := w.informer.SetTransform(lightenPod); err != nil {
		return nil, fmt.Errorf("watch the node's pods: %w", err)
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if was, ok := before.(*corev1.Pod); ok && !over(was) {
				if is, ok := after.(*corev1.Pod); ok && (over(is) || is.UID != was.UID) {
					w.notice()
				}
			}
		},
		DeleteFunc: func(any) { w.notice() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the node's pods: %w", err)
	}
	return w, nil
}

// run watches until ctx is done.
func (w *podWatch) run(ctx context.Context) {
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
			w.notice()
		}
	})
	w.informer.RunWithContext(ctx)
	waiting.Wait()
}

func (w *podWatch) notice() {
	select {
	case w.ended <- struct{}{}:
	default:
	}
}

func (w *podWatch) known() bool { return w.informer.HasSynced() }

func (w *podWatch) users(namespace, claim string) []*corev1.Pod {
	return w.found(byClaim, namespace+"/"+claim)
}

func (w *podWatch) lives(uid types.UID) bool { return len(w.found(byUID, string(uid))) > 0 }

func (w *podWatch) named(namespace, name string) *corev1.Pod {
	object, _, err := w.informer.GetIndexer().GetByKey(namespace + "/" + name)
	pod, ok := object.(*corev1.Pod)
	if err != nil || !ok || over(pod) {
		return nil
	}
	return pod
}

func (w *podWatch) all() []*corev1.Pod { return living(w.informer.GetIndexer().List()) }

func (w *podWatch) found(index, value string) []*corev1.Pod {
	objects, err := w.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // there is no other index
	}
	return living(objects)
}

func living(objects []any) (pods []*corev1.Pod) {
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && !over(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// over reports whether no container of the pod runs any more or will.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// claimsOfPod is an index by the claims that a pod names.
func claimsOfPod(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var claims []string
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && ptr.Deref(name, "") != "" {
			claims = append(claims, pod.Namespace+"/"+*name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		claims = append(claims, pod.Namespace+"/"+extended.ResourceClaimName)
	}
	return claims, nil
}

func uidOfPod(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return []string{string(pod.UID)}, nil
	}
	return nil, nil
}

// lightenPod drops what nobody reads here: most of a pod.
func lightenPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	light := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, RuntimeClassName: pod.Spec.RuntimeClassName, ResourceClaims: pod.Spec.ResourceClaims},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, StartTime: pod.Status.StartTime, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
		},
	}
	if text, ok := pod.Annotations[v1alpha1.RequestAnnotation]; ok {
		light.Annotations = map[string]string{v1alpha1.RequestAnnotation: text}
	}
	light.Spec.InitContainers, light.Spec.Containers = lightenContainers(pod.Spec.InitContainers), lightenContainers(pod.Spec.Containers)
	return light, nil
}

func lightenContainers(all []corev1.Container) []corev1.Container {
	var light []corev1.Container
	for i := range all {
		light = append(light, corev1.Container{Name: all[i].Name, Resources: all[i].Resources, SecurityContext: all[i].SecurityContext})
	}
	return light
}
