{{- /* The chart's names are fixed: a node's GPUs have one agent, so a cluster has one Divvy. */ -}}

{{- define "divvy.mode" -}}
{{- $new := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and (eq .Values.mode "claims") (not $new) -}}
{{- fail (printf "mode claims needs Kubernetes 1.36, and this is %s: use mode slots" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if ne .Values.mode "auto" }}{{ .Values.mode }}{{ else if $new }}claims{{ else }}slots{{ end -}}
{{- end -}}

{{- /* Fails where NVIDIA's DRA driver, or somebody else, has the device class of whole GPUs. Without a cluster nothing is
known, and nothing is refused. */ -}}
{{- define "divvy.nvidiaFree" -}}
{{- range $name := list "gpu.nvidia.com" "mig.nvidia.com" -}}
{{- $class := lookup "resource.k8s.io/v1" "DeviceClass" "" $name -}}
{{- if $class -}}
{{- if ne (dig "metadata" "labels" "app.kubernetes.io/name" "" $class) "divvy" -}}
{{- fail (printf "nvidiaClass: the cluster has a device class %s that is not Divvy's: uninstall NVIDIA's DRA driver first, or leave out nvidiaClass" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range dig "items" list (lookup "resource.k8s.io/v1" "ResourceSlice" "" "") -}}
{{- if eq .spec.driver "gpu.nvidia.com" -}}
{{- fail (printf "nvidiaClass: NVIDIA's DRA driver serves GPUs of node %s (resource slice %s): uninstall it first, or leave out nvidiaClass" (dig "nodeName" "unknown" .spec) .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "divvy.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* Takes (list root component). */ -}}
{{- define "divvy.selector" -}}
app.kubernetes.io/name: divvy
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "divvy.labels" -}}
{{ include "divvy.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: divvy
{{- end -}}

{{- /* What the pods of every component have in common; takes (list root component values). */ -}}
{{- define "divvy.pod" -}}
{{- $root := index . 0 -}}
{{- $own := index . 2 -}}
serviceAccountName: divvy-{{ index . 1 }}
priorityClassName: {{ $own.priorityClassName }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Replicas on different nodes where there are several; takes (list root component). */ -}}
{{- define "divvy.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "divvy.selector" . | nindent 14 }}
{{- end -}}

{{- /* Metadata of a pod template; takes (list root component values). */ -}}
{{- define "divvy.podMetadata" -}}
labels:
  {{- include "divvy.labels" . | nindent 2 }}
  {{- with (index . 2).podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with (index . 2).podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A container without any privilege. */ -}}
{{- define "divvy.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "divvy.webhookConfig" -}}
apiVersion: divvy.dev/v1alpha1
kind: WebhookConfig
mode: {{ include "divvy.mode" . }}
{{- with include "divvy.schedulerName" . }}
schedulerName: {{ . }}
{{- end }}
{{- if include "divvy.schedulerRuns" . }}
scheduler:
  users: [{{ include "divvy.schedulerUser" . | quote }}]
  queues: true
{{- end }}
{{- if eq (include "divvy.mode" .) "slots" }}
binders: {{ include "divvy.binders" . }}
{{- end }}
{{- with .Values.maxWeight }}
maxWeight: {{ . }}
{{- end }}
ownKernels: {{ toJson .Values.ownKernels }}
{{- if .Values.nvidiaClass }}
nvidiaClass: true
{{- end }}
dialects:
{{- toYaml .Values.dialects | nindent 2 }}
{{- end -}}

{{- define "divvy.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: divvy-scheduler
  resourceNamespace: {{ .Release.Namespace }}
clientConnection:
  qps: {{ .Values.scheduler.requestsPerSecond }}
  burst: {{ mul 2 .Values.scheduler.requestsPerSecond }}
profiles:
  - schedulerName: {{ .Values.schedulerName | default "divvy-scheduler" }}
{{- end -}}

{{- /* The configuration of the cluster's kube-scheduler that asks the extender beside it. */ -}}
{{- define "divvy.kubeSchedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: divvy-scheduler
  resourceNamespace: {{ .Release.Namespace }}
clientConnection:
  qps: {{ .Values.scheduler.requestsPerSecond }}
  burst: {{ mul 2 .Values.scheduler.requestsPerSecond }}
# The scheduler looks for enough nodes before it asks extenders, and those may be the full ones.
percentageOfNodesToScore: 100
profiles:
  - schedulerName: {{ include "divvy.slotsScheduler" . }}
extenders:
  - urlPrefix: https://127.0.0.1:8444
    filterVerb: filter
    # Before it ends pods of lower priority, so that it ends none on nodes whose GPUs are full.
    preemptVerb: preempt
    bindVerb: bind
    enableHTTPS: true
    # It is the same pod's, which nobody else can answer for.
    tlsConfig: {insecure: true}
    # Longer than the extender waits for the API server, so that it answers what became of a Binding.
    httpTimeout: 30s
    nodeCacheCapable: true
    ignorable: false
    managedResources:
      - {name: divvy.dev/shares, ignoredByScheduler: false}
  # Nodes are scored for pods without shares too, so that these leave processors beside GPUs. Without an answer they are placed all the same.
  - urlPrefix: https://127.0.0.1:8444
    prioritizeVerb: prioritize
    # This order comes before what else the scheduler scores.
    weight: 100
    enableHTTPS: true
    tlsConfig: {insecure: true}
    httpTimeout: 3s
    nodeCacheCapable: true
    ignorable: true
{{- end -}}

{{- /* The image of kube-scheduler, of the API server's version unless a value says otherwise. Kubernetes supports one that is a
minor version older, and none that is newer. */ -}}
{{- define "divvy.kubeSchedulerImage" -}}
{{- $own := .Values.slots.kubeScheduler -}}
{{- $cluster := semver .Capabilities.KubeVersion.Version -}}
{{- $version := $own.version | default (printf "v%d.%d.%d" $cluster.Major $cluster.Minor $cluster.Patch) -}}
{{- $minor := (semver (first (splitList "@" $version))).Minor -}}
{{- if not (has (int (sub $cluster.Minor $minor)) (list 0 1)) -}}
{{- fail (printf "slots.kubeScheduler.version: kube-scheduler %s does not serve Kubernetes %s: leave it out, or give one of 1.%d" $version .Capabilities.KubeVersion.Version $cluster.Minor) -}}
{{- end -}}
{{ $own.repository }}:{{ $version }}
{{- end -}}

{{- /* Says something where Divvy's scheduler runs. */ -}}
{{- define "divvy.schedulerRuns" -}}
{{- if and .Values.scheduler.enabled .Values.scheduler.replacesDefault }}{{ fail "scheduler: with replacesDefault it runs in the place of the cluster's own: leave enabled off" }}{{ end }}
{{- if and .Values.scheduler.replacesDefault (ne (include "divvy.mode" .) "claims") }}{{ fail "scheduler.replacesDefault: the scheduler gives claims, so it needs mode claims and Kubernetes 1.36" }}{{ end }}
{{- if or .Values.scheduler.enabled .Values.scheduler.replacesDefault }}yes{{ end }}
{{- end -}}

{{- /* Says something where the chart installs the kind Queue. The scheduler serves queues wherever there are any. */ -}}
{{- define "divvy.queues" -}}
{{- if and .Values.scheduler.queues (include "divvy.schedulerRuns" .) }}yes{{ end }}
{{- end -}}

{{- /* The value schedulerName, or else the name that the cluster's own scheduler has where it asks the extender, or Divvy's replaces it. */ -}}
{{- define "divvy.schedulerName" -}}
{{- $default := or .Values.scheduler.replacesDefault (and (eq (include "divvy.mode" .) "slots") .Values.slots.extender.only) -}}
{{- if .Values.schedulerName }}{{ .Values.schedulerName }}{{ else if $default }}default-scheduler{{ end }}
{{- end -}}

{{- /* The name under which the scheduler of mode slots runs. */ -}}
{{- define "divvy.slotsScheduler" -}}
{{- include "divvy.schedulerName" . | default "divvy-scheduler" -}}
{{- end -}}

{{- /* The users who bind pods to GPUs in mode slots, as a list in JSON: the extender, and those that are named. */ -}}
{{- define "divvy.binders" -}}
{{- prepend .Values.slots.binders (printf "system:serviceaccount:%s:divvy-scheduler" .Release.Namespace) | uniq | toJson -}}
{{- end -}}

{{- /* As whom Divvy's scheduler asks the API server. */ -}}
{{- define "divvy.schedulerUser" -}}
{{- if .Values.scheduler.replacesDefault }}system:kube-scheduler{{ else }}system:serviceaccount:{{ .Release.Namespace }}:divvy-scheduler{{ end }}
{{- end -}}

{{- /* Where agents listen for scrapes and probes: loopback, unless somebody is to scrape them; empty is everywhere. */ -}}
{{- define "divvy.metricsHost" -}}
{{- $host := .Values.agent.metrics.host -}}
{{- if and .Values.metrics.podMonitor.enabled (or (hasPrefix "127." $host) (has $host (list "localhost" "[::1]"))) -}}
{{- fail (printf "agent.metrics.host: with metrics.podMonitor agents are scraped from other machines, which cannot reach %s: leave it out, or give another address" $host) -}}
{{- end -}}
{{- if $host }}{{ $host }}{{ else if not .Values.metrics.podMonitor.enabled }}127.0.0.1{{ end -}}
{{- end -}}

{{- define "divvy.agentConfig" -}}
apiVersion: divvy.dev/v1alpha1
kind: AgentConfig
outside: {{ .Values.agent.outside }}
{{- with .Values.agent.swapMemory }}
swapMemory: {{ . }}
{{- end }}
{{- with .Values.agent.turnMemory }}
turnMemory: {{ . }}
{{- end }}
{{- with .Values.agent.backends }}
backends: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.agent.metrics.dcgm }}
metrics: {dcgm: true}
{{- end }}
{{- with .Values.agent.history }}
history: {{- toYaml . | nindent 2 }}
{{- end }}
nics: {{ include "divvy.nics" . }}
{{- with .Values.agent.nicShares }}
nicShares: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Which RDMA cards are published: off, auto or a list. YAML of Helm reads the word off as false. */ -}}
{{- define "divvy.nics" -}}
{{- with .Values.agent.nics }}{{ if kindIs "slice" . }}{{ toJson . }}{{ else }}{{ . }}{{ end }}{{ else }}off{{ end -}}
{{- end -}}

{{- /* The ConfigMap with configurations of NVIDIA's device plugin, empty where there is none. */ -}}
{{- define "divvy.pluginConfigs" -}}
{{- with .Values.agent.devicePlugin -}}
{{- if and .configs .configMap }}{{ fail "agent.devicePlugin: give either configs or configMap" }}{{ end -}}
{{- if or .configs .configMap -}}
{{- range list "nvidia" "hami" "4paradigm" -}}
{{- if and (eq (include "divvy.mode" $) "slots") (hasKey $.Values.dialects .) }}{{ fail (printf "agent.devicePlugin: in mode slots the dialect %s reads nvidia.com/gpu too: turn one of them off" .) }}{{ end -}}
{{- end -}}
{{- if .configs }}divvy-device-plugin{{ else }}{{ .configMap }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The names that the dialects read decide which pods the webhook sees. */ -}}
{{- define "divvy.asks" -}}
{{- $file := .Files.Get "files/dialects.yaml" | fromYaml -}}
{{- $resources := list -}}{{- $prefixes := list -}}{{- $annotations := list -}}{{- $starts := list -}}
{{- range $name := keys .Values.dialects | sortAlpha -}}
{{- $names := get $file.dialects $name -}}
{{- $resources = concat $resources (get $names "resources" | default list) -}}
{{- $prefixes = concat $prefixes (get $names "prefixes" | default list) -}}
{{- $annotations = concat $annotations (get $names "annotations" | default list) -}}
{{- $starts = concat $starts (get $names "annotationPrefixes" | default list) -}}
{{- end -}}
{{- $key := list -}}
{{- if $resources -}}{{- $key = append $key (printf "n in ['%s']" (join "', '" $resources)) -}}{{- end -}}
{{- range $prefixes -}}{{- $key = append $key (printf "n.startsWith('%s')" .) -}}{{- end -}}
{{- $any := list -}}
{{- if $key -}}
{{- $any = append $any ($file.pods.resources | replace "n in ['NAME']" (join " || " $key)) -}}
{{- end -}}
{{- $key = list -}}
{{- if $annotations -}}{{- $key = append $key (printf "n in ['%s']" (join "', '" $annotations)) -}}{{- end -}}
{{- range $starts -}}{{- $key = append $key (printf "n.startsWith('%s')" .) -}}{{- end -}}
{{- if $key -}}
{{- $any = append $any ($file.pods.annotations | replace "n in ['NAME']" (join " || " $key)) -}}
{{- end -}}
{{- join " || " $any | default "false" -}}
{{- end -}}
