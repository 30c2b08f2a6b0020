// Package servefile reads and edits serve.yaml, which says where `divvy serve` listens, which GPUs it offers, and what each of its
// clients may have of them. It is pure: the accounts of the machine are asked through [Users].
//
// The file is YAML, read strictly: an unknown field, a field given twice, a user who does not exist and a value out of range are
// errors with file, line and field.
//
//	apiVersion: divvy.dev/v1alpha1
//	kind: ServeConfig
//	listen: ":7117"
//	gpus: all                  # or such as [0, GPU-6e5f…]
//	clients:
//	  ada: {user: ada, memory: 48Gi, cores: 100, shares: 4, class: offline}
//	  bea: {user: bea, commands: true, environment: [LANG, "SLURM_*"]}
package servefile
