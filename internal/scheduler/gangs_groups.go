package scheduler

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

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

// FollowGroups has gangs hear of the PodGroups of the cluster until the context ends: of each form whose objects the API serves
// at that time. changed is told of pods for which something may have changed. It returns at once, and is called once.
func (e *Engine) FollowGroups(ctx context.Context, served Served, client dynamic.Interface, changed func(...*corev1.Pod)) {
	e.Gangs.follow()
	for _, form := range groupForms {
		resource, _ := form.Resource()
		f := &groupFollower{gangs: &e.Gangs, form: form, changed: changed}
		o := objects{resource: resource, served: served, client: client, transform: slim, told: f.set, state: f.state, forget: f.forget}
		go o.run(ctx)
	}
}

// groupFollower tells gangs of the objects of one form.
type groupFollower struct {
	gangs   *Gangs
	form    gang.Form
	changed func(...*corev1.Pod)
}

func (f *groupFollower) set(before, after *unstructured.Unstructured) {
	if after == nil {
		f.changed(f.gangs.SetGroup(f.form, before.GetNamespace(), before.GetName(), nil)...)
		return
	}
	group := groupOf(f.form, after)
	f.changed(f.gangs.SetGroup(f.form, after.GetNamespace(), after.GetName(), &group)...)
}

func (f *groupFollower) state(_ objectsState, why string) {
	f.changed(f.gangs.setFault(f.form, why)...)
}

func (f *groupFollower) forget() { f.gangs.forgetGroups(f.form) }

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
