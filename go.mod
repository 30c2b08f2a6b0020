module github.com/divvy-gpu/divvy

go 1.26.8

require (
	go.yaml.in/yaml/v3 v3.0.3
	golang.org/x/sys v0.49.0
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.2 // indirect
