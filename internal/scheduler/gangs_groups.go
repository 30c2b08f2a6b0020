package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// groupsPoll is the time between two looks whether the API serves the PodGroups of a form: a definition that is installed
// while the scheduler runs is noticed so late at most.
const groupsPoll = 10 * time.Second

// groupForms are the forms whose gangs objects describe.
var groupForms = []gang.Form{gang.FormKubernetes, gang.FormCoscheduling, gang.FormSIGs, gang.FormVolcano}

// groups are the PodGroups that are known. The mutex of Gangs guards them.
type groups struct {
	all map[gang.Form]map[string]gang.PodGroup // by namespace/name
	// faults say of forms why their objects are not known. A form without an entry is known.
	faults map[gang.Form]string
	// settled are the forms that are known, or of which it is known why they are not.
	settled  map[gang.Form]bool
	followed bool
}

func (g *groups) init() {
	g.all, g.faults, g.settled = map[gang.Form]map[string]gang.PodGroup{}, map[gang.Form]string{}, map[gang.Form]bool{}
	for _, form := range groupForms {
		g.all[form], g.faults[form] = map[string]gang.PodGroup{}, "has not been read yet"
	}
}

// PodGroup implements gang.PodGroups.
func (g *groups) PodGroup(form gang.Form, namespace, name string) (gang.PodGroup, bool) {
	if fault, ok := g.faults[form]; ok {
		return gang.PodGroup{Fault: fault}, true
	}
	group, ok := g.all[form][namespace+"/"+name]
	return group, ok
}

// SetGroup notes a PodGroup as it is; nil is one that has gone. It returns the pods of its gang that wait.
func (g *Gangs) SetGroup(form gang.Form, namespace, name string, group *gang.PodGroup) []*corev1.Pod {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if group != nil {
		g.groups.all[form][namespace+"/"+name] = *group
	} else {
		delete(g.groups.all[form], namespace+"/"+name)
	}
	return g.podsOf(g.members.Changed(form, namespace, name))
}

// setFault notes why the PodGroups of a form are not known, or that they are where it is empty. It returns the pods that name
// such PodGroups and wait.
func (g *Gangs) setFault(form gang.Form, fault string) []*corev1.Pod {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.groups.settled[form] = true
	before, faulty := g.groups.faults[form]
	if fault == before && faulty == (fault != "") {
		return nil
	}
	if fault == "" {
		delete(g.groups.faults, form)
	} else {
		g.groups.faults[form] = fault
	}
	return g.podsOf(g.members.ChangedForm(form))
}

// forgetGroups forgets the PodGroups of a form.
func (g *Gangs) forgetGroups(form gang.Form) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.groups.all[form] = map[string]gang.PodGroup{}
}

func (g *Gangs) podsOf(keys []string) (pods []*corev1.Pod) {
	for _, key := range keys {
		if pod := g.pods[key]; pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// follow has [Gangs.settled] wait for the PodGroups of all forms.
func (g *Gangs) follow() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.groups.followed = true
}

// settled reports whether of all forms that are followed it is known what there is, or why that cannot be known.
func (g *Gangs) settled() bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return !g.groups.followed || len(g.groups.settled) == len(groupForms)
}

// Served tells what an API serves.
type Served interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// FollowGroups has gangs hear of the PodGroups of the cluster until the context ends: of each form whose objects the API serves
// at that time. changed is told of pods for which something may have changed. It returns at once, and is called once.
func (e *Engine) FollowGroups(ctx context.Context, served Served, client dynamic.Interface, changed func(...*corev1.Pod)) {
	e.Gangs.follow()
	for _, form := range groupForms {
		resource, _ := form.Resource()
		f := &groupFollower{gangs: &e.Gangs, form: form, resource: resource, served: served, client: client, changed: changed}
		go f.run(ctx)
	}
}

// groupFollower follows the objects of one form.
type groupFollower struct {
	gangs    *Gangs
	form     gang.Form
	resource schema.GroupVersionResource
	served   Served
	client   dynamic.Interface
	changed  func(...*corev1.Pod)
}

func (f *groupFollower) run(ctx context.Context) {
	var stop func() // nil while nothing is followed
	ticker := time.NewTicker(groupsPoll)
	defer ticker.Stop()
	for {
		is, err := f.isServed()
		switch {
		case err != nil && stop != nil: // what is known stays
		case err != nil:
			f.fault("cannot be read: " + oneLine(err))
		case is && stop == nil:
			stop = f.begin(ctx)
		case !is:
			if stop != nil {
				stop()
				stop = nil
			}
			f.fault(fmt.Sprintf("is of %s, which this cluster does not serve", f.resource.GroupVersion()))
		}
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case <-ticker.C:
		}
	}
}

func (f *groupFollower) fault(text string) { f.changed(f.gangs.setFault(f.form, text)...) }

// begin follows the objects. What it returns ends that, and forgets them.
func (f *groupFollower) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.follow(ctx)
	}()
	return func() {
		cancel()
		<-done
		f.gangs.forgetGroups(f.form)
	}
}

// isServed reports whether the API has objects of the form.
func (f *groupFollower) isServed() (bool, error) {
	list, err := f.served.ServerResourcesForGroupVersion(f.resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == f.resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// follow hears of the objects until the context ends.
func (f *groupFollower) follow(ctx context.Context) {
	informer := dynamicinformer.NewFilteredDynamicInformer(f.client, f.resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	heard, err := informer.AddEventHandler(handler(func(before, after *unstructured.Unstructured) {
		if after == nil {
			f.changed(f.gangs.SetGroup(f.form, before.GetNamespace(), before.GetName(), nil)...)
			return
		}
		group := groupOf(f.form, after)
		f.changed(f.gangs.SetGroup(f.form, after.GetNamespace(), after.GetName(), &group)...)
	}))
	err = errors.Join(err, informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("PodGroups not read", "resource", f.resource, "err", err)
		if !heard.HasSynced() && ctx.Err() == nil {
			f.fault("cannot be read: " + oneLine(err))
		}
	}))
	if err != nil {
		f.fault("cannot be read: " + oneLine(err))
		return
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), heard.HasSynced) {
		f.fault("")
	}
	running.Wait()
}

// oneLine is an error fit for a reason.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}

// slim leaves of a PodGroup what is read of it.
func slim(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{"apiVersion": full.GetAPIVersion(), "kind": full.GetKind(), "spec": full.Object["spec"]}}
	kept.SetNamespace(full.GetNamespace())
	kept.SetName(full.GetName())
	kept.SetUID(full.GetUID())
	kept.SetResourceVersion(full.GetResourceVersion())
	return kept, nil
}

// groupOf reads an object of a form.
func groupOf(form gang.Form, object *unstructured.Unstructured) gang.PodGroup {
	if form != gang.FormKubernetes {
		return gang.FromObject(form, object.Object)
	}
	var typed schedulingv1alpha2.PodGroup
	text, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(text, &typed)
	}
	if err != nil {
		return gang.PodGroup{Fault: "cannot be read: " + oneLine(err)}
	}
	return gang.FromKubernetes(&typed)
}
