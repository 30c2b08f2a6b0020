package gang

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// ErrGang marks pods whose gang cannot be known from what they say. The text is one line for whoever wrote the pod.
var ErrGang = errors.New("invalid gang")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrGang, fmt.Sprintf(format, args...))
}

// Of is the gang of a pod, and false for a pod of none. groups may be nil, which has no object. The error is [ErrGang];
// the gang has its name also then.
func Of(pod *corev1.Pod, groups PodGroups) (Gang, bool, error) {
	form, name, ok := formOf(pod)
	switch {
	case !ok:
		return Gang{}, false, orphaned(pod)
	case form == FormAnnotations:
		g, err := annotated(pod)
		return g, true, err
	}
	return foreign(pod, form, name, groups)
}

// orphaned refuses annotations about a gang without one that names it.
func orphaned(pod *corev1.Pod) error {
	for _, name := range []string{
		v1alpha1.GangSizeAnnotation, v1alpha1.GangMinimumAnnotation, v1alpha1.GangTopologyAnnotation, v1alpha1.GangShareGPUsAnnotation,
	} {
		if _, ok := pod.Annotations[name]; ok {
			return invalid("annotation %s needs %s, which names the gang", name, v1alpha1.GangAnnotation)
		}
	}
	return nil
}

// annotated reads our own annotations.
func annotated(pod *corev1.Pod) (Gang, error) {
	notes := pod.Annotations
	g := Gang{Namespace: pod.Namespace, Name: notes[v1alpha1.GangAnnotation]}
	if len(validation.IsDNS1123Subdomain(g.Name)) > 0 {
		return g, invalid("annotation %s: %s is no name: use lower case letters, digits, '-' and '.'", v1alpha1.GangAnnotation, quote(g.Name))
	}
	size, ok := notes[v1alpha1.GangSizeAnnotation]
	if !ok {
		return g, invalid("annotation %s is missing: it says how many members the gang has", v1alpha1.GangSizeAnnotation)
	}
	var err error
	if g.Size, err = count("annotation", v1alpha1.GangSizeAnnotation, size, v1alpha1.MostGangMembers); err != nil {
		return g, err
	}
	g.Minimum = g.Size
	if minimum, ok := notes[v1alpha1.GangMinimumAnnotation]; ok {
		if g.Minimum, err = count("annotation", v1alpha1.GangMinimumAnnotation, minimum, g.Size); err != nil {
			return g, err
		}
	}
	return g, g.adorn(notes)
}

// adorn reads the annotations that gangs of all forms may have.
func (g *Gang) adorn(notes map[string]string) (err error) {
	switch share := notes[v1alpha1.GangShareGPUsAnnotation]; share {
	case "", "false":
	case "true":
		g.ShareGPUs = true
	default:
		return invalid("annotation %s: %s is neither true nor false", v1alpha1.GangShareGPUsAnnotation, quote(share))
	}
	if topology, ok := notes[v1alpha1.GangTopologyAnnotation]; ok {
		g.Topology, err = levels(topology)
	}
	return err
}

// count reads how many members there are.
func count(what, key, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid("%s %s: %s is no number from 1 to %d", what, key, quote(text), most)
	}
	return n, nil
}

// mostLevels bounds the topology of a gang.
const mostLevels = 8

// levels reads LABEL=required,LABEL=preferred.
func levels(text string) (all []Level, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > mostLevels {
		return nil, invalid("annotation %s has %d labels: give at most %d", v1alpha1.GangTopologyAnnotation, len(parts), mostLevels)
	}
	for _, part := range parts {
		label, how, _ := strings.Cut(strings.TrimSpace(part), "=")
		if len(validation.IsQualifiedName(label)) > 0 || how != "required" && how != "preferred" {
			return nil, invalid("annotation %s: %s is not LABEL=required or LABEL=preferred", v1alpha1.GangTopologyAnnotation, quote(part))
		}
		for _, level := range all {
			if level.Label == label {
				return nil, invalid("annotation %s names %s twice", v1alpha1.GangTopologyAnnotation, label)
			}
		}
		all = append(all, Level{Label: label, Required: how == "required"})
	}
	return all, nil
}

// quote makes what somebody wrote fit for one line.
func quote(text string) string {
	if len(text) > 64 {
		text = text[:64] + "…"
	}
	return strconv.Quote(text)
}

// text writes levels as the annotation has them.
func text(levels []Level) string {
	var parts []string
	for _, l := range levels {
		how := "=preferred"
		if l.Required {
			how = "=required"
		}
		parts = append(parts, l.Label+how)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ",")
}

// Check returns an error unless the annotations that a pod has for gangs are well-formed, whatever form its gang has and
// whether objects describe it already. The error is [ErrGang].
func Check(pod *corev1.Pod) error {
	if form, _, ok := formOf(pod); ok && form != FormAnnotations {
		return new(Gang).adorn(pod.Annotations)
	}
	_, _, err := Of(pod, nil)
	return err
}
