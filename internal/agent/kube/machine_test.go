package kube

import (
	"testing"
	"testing/fstest"
)

func TestProductOf(t *testing.T) {
	if got := productOf(fstest.MapFS{"class/dmi/id/product_name": {Data: []byte("PowerEdge R750\n")}}); got != "PowerEdge R750" {
		t.Errorf("the machine is %q", got)
	}
	if got := productOf(fstest.MapFS{}); got != "" {
		t.Errorf("a machine without firmware is %q", got)
	}
}
