//go:build programs

// Package programs names Helm's command line, so that this module knows its
// dependencies.
package programs

import _ "helm.sh/helm/v4/cmd/helm"
