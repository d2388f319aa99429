{{- define "stowplan.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* Also the name of both webhook configurations. */}}
{{- define "stowplan.fullname" -}}
{{- $name := include "stowplan.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "stowplan.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "stowplan.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "stowplan.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: stowplan
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "stowplan.labels" -}}
{{ include "stowplan.commonLabels" . }}
app.kubernetes.io/component: webhook
{{- end }}

{{- define "stowplan.controlLabels" -}}
{{ include "stowplan.commonLabels" . }}
app.kubernetes.io/component: control
{{- end }}

{{/* "true" where the leader is a process of its own. */}}
{{- define "stowplan.controlApart" -}}
{{- eq .Values.control.mode "Deployment" }}
{{- end }}

{{/* The processes, as a JSON list: component, name, command, account. */}}
{{- define "stowplan.processes" -}}
{{- $apart := eq (include "stowplan.controlApart" .) "true" }}
{{- $name := include "stowplan.fullname" . }}
{{- $serve := dict "component" "webhook" "name" $name "args" (list "serve") "account" (include "stowplan.serviceAccount" .) "replicas" .Values.replicas "resources" .Values.resources "portShift" 0 }}
{{- if $apart }}
{{- $shift := ternary 10 0 .Values.hostNetwork }}
{{- $control := dict "component" "control" "name" (include "stowplan.control" .) "args" (list "control") "account" (include "stowplan.controlAccount" .) "replicas" .Values.control.replicas "resources" (.Values.control.resources | default .Values.resources) "portShift" $shift }}
{{- list $serve $control | toJson }}
{{- else }}
{{- $_ := set $serve "args" (list "serve" "--control") }}
{{- list $serve | toJson }}
{{- end }}
{{- end }}

{{/* Name of what belongs to control alone. */}}
{{- define "stowplan.control" -}}
{{ include "stowplan.fullname" . }}-control
{{- end }}

{{/* Name of the Service that leads to the leader, and of its EndpointSlice. */}}
{{- define "stowplan.leader" -}}
{{ include "stowplan.fullname" . }}-leader
{{- end }}

{{/* "true" where the API server asks about bindings; elsewhere all policies advise new pods. */}}
{{- define "stowplan.binds" -}}
{{- $isAlone := and (eq .Values.control.mode "Embedded") (eq (int .Values.replicas) 1) (not .Values.autoscaling.enabled) }}
{{- $isReached := or (not .Values.webhook.url) .Values.binding.url $isAlone }}
{{- and .Values.binding.enabled (ne (include "stowplan.mode" .Values.placement.mode) "Off") (not (empty $isReached)) }}
{{- end }}

{{/* What the pods of a process are found by: (dict "root" $ "component" "webhook"). */}}
{{- define "stowplan.selector" -}}
app.kubernetes.io/name: {{ include "stowplan.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The same for all processes: a whole selector. */}}
{{- define "stowplan.everySelector" -}}
matchLabels:
  app.kubernetes.io/name: {{ include "stowplan.name" . }}
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - key: app.kubernetes.io/component
    operator: In
    values: [webhook, control]
{{- end }}

{{/* A mode; YAML reads a bare Off as false. */}}
{{- define "stowplan.mode" -}}
{{ . | default "Off" }}
{{- end }}

{{- define "stowplan.image" -}}
{{- with .Values.image -}}
{{- with .registry | default $.Values.global.imageRegistry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Pull secrets, as a JSON list. */}}
{{- define "stowplan.pullSecrets" -}}
{{- concat .Values.imagePullSecrets .Values.global.imagePullSecrets | uniq | toJson }}
{{- end }}

{{/* OpenShift gives each namespace a range of users, and refuses others. */}}
{{- define "stowplan.podSecurityContext" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup" | toYaml }}
{{- else }}
{{- toYaml .Values.podSecurityContext }}
{{- end }}
{{- end }}

{{- define "stowplan.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "stowplan.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* The account of the leader. */}}
{{- define "stowplan.controlAccount" -}}
{{- if ne (include "stowplan.controlApart" .) "true" -}}
{{ include "stowplan.serviceAccount" . }}
{{- else if .Values.serviceAccount.create -}}
{{ .Values.control.serviceAccountName | default (printf "%s-control" (include "stowplan.serviceAccount" .)) }}
{{- else -}}
{{ .Values.control.serviceAccountName | default "default" }}
{{- end }}
{{- end }}

{{/* Subjects of a binding: our accounts, each once. */}}
{{- define "stowplan.subjects" -}}
{{- range list (include "stowplan.serviceAccount" .) (include "stowplan.controlAccount" .) | uniq }}
- kind: ServiceAccount
  name: {{ . }}
  namespace: {{ include "stowplan.namespace" $ }}
{{- end }}
{{- end }}

{{/* Accounts that may remove our gate, as a CEL list: of control, of the dead man's switch, of hooks. */}}
{{- define "stowplan.releasingAccounts" -}}
{{- $names := list (include "stowplan.controlAccount" .) }}
{{- range list "deadman" "uninstall" }}
{{- $names = append $names (printf "%s-%s" (include "stowplan.fullname" $) .) }}
{{- end }}
{{- $users := list }}
{{- range $names }}
{{- $users = append $users (printf "'system:serviceaccount:%s:%s'" (include "stowplan.namespace" $) .) }}
{{- end -}}
[{{ join ", " $users }}]
{{- end }}

{{- define "stowplan.secret" -}}
{{ .Values.certificates.secretName | default (printf "%s-tls" (include "stowplan.fullname" .)) }}
{{- end }}

{{- define "stowplan.policiesConfigMap" -}}
{{ .Values.policies.existingConfigMap | default (printf "%s-policies" (include "stowplan.fullname" .)) }}
{{- end }}

{{/* All names that callers use, as a JSON list. */}}
{{- define "stowplan.certificateNames" -}}
{{- $services := list (include "stowplan.fullname" .) }}
{{- if eq (include "stowplan.binds" .) "true" }}
{{- $services = append $services (include "stowplan.leader" .) }}
{{- end }}
{{- $names := list }}
{{- range $services }}
{{- $service := printf "%s.%s.svc" . (include "stowplan.namespace" $) }}
{{- $names = concat $names (list $service (printf "%s.cluster.local" $service)) }}
{{- end }}
{{- concat $names .Values.certificates.extraNames | uniq | toJson }}
{{- end }}

{{/* All namespaces that we are never asked about, as a JSON list. */}}
{{- define "stowplan.excludedNamespaces" -}}
{{- concat (list "kube-node-lease" "kube-public" "kube-system" (include "stowplan.namespace" .)) .Values.excludedNamespaces | uniq | toJson }}
{{- end }}

{{/* Whether `helm test` can ask for advice where it asks for a pod: true or false. */}}
{{- define "stowplan.advisesTest" -}}
{{- $asked := and .Values.enabled (eq (include "stowplan.mode" .Values.placement.mode) "Enforce") }}
{{- $excluded := include "stowplan.excludedNamespaces" . | fromJsonArray }}
{{- $advised := and $asked (ne (include "stowplan.binds" .) "true") }}
{{- and .Values.tests.expectAdvice $advised (not (has .Values.tests.namespace $excluded)) }}
{{- end }}

{{- define "stowplan.webhookAnnotations" -}}
{{- $annotations := deepCopy .Values.webhook.annotations }}
{{- if eq .Values.certificates.mode "CertManager" }}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" (include "stowplan.namespace" .) (include "stowplan.fullname" .)) }}
{{- end }}
{{- if $annotations }}
{{- toYaml $annotations }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "path" "/mutate"), of the leader with "leads" true */}}
{{- define "stowplan.clientConfig" -}}
{{- with .root -}}
{{- $url := ternary (.Values.binding.url | default .Values.webhook.url) .Values.webhook.url ($.leads | default false) }}
{{- if $url -}}
url: {{ $url }}{{ $.path }}
{{- else -}}
service:
  name: {{ include (ternary "stowplan.leader" "stowplan.fullname" ($.leads | default false)) . }}
  namespace: {{ include "stowplan.namespace" . }}
  path: {{ $.path }}
  port: {{ .Values.webhook.servicePort }}
{{- end }}
{{- with .Values.webhook.caBundle }}
caBundle: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* (dict "root" $ "for" .Values.quota "label" "stowplan.dev/quota") */}}
{{- define "stowplan.namespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name # set by the API server: nobody can lie about it
    operator: NotIn
    values: {{ include "stowplan.excludedNamespaces" .root }}
  - key: {{ .label }}
{{- if eq .for.rollout "Labelled" }}
    operator: In
    values: [enabled]
{{- else }}
    operator: NotIn
    values: [disabled]
{{- end }}
{{- with .for.namespaceMatchExpressions }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same but for the excluded ones, as a text. */}}
{{- define "stowplan.namespaceSelectorText" -}}
{{- $texts := list (ternary (printf "%s=enabled" .label) (printf "%s!=disabled" .label) (eq .for.rollout "Labelled")) }}
{{- range .for.namespaceMatchExpressions }}
{{- $values := .values | default list | join "," }}
{{- $texts = append $texts (get (dict "In" (printf "%s in (%s)" .key $values) "NotIn" (printf "%s notin (%s)" .key $values) "Exists" .key "DoesNotExist" (printf "!%s" .key)) .operator) }}
{{- end }}
{{- join "," $texts }}
{{- end }}

{{/* Longer than everything that happens between the first signal and the last answer. */}}
{{- define "stowplan.graceSeconds" -}}
{{ add .Values.shutdown.delaySeconds .Values.shutdown.drainSeconds 10 }}
{{- end }}

{{/* "true" where pods may be evicted for others, as far as quotas and policies say so. */}}
{{- define "stowplan.reclaims" -}}
{{- and .Values.hold.enabled (or .Values.preemption.enabled (eq (include "stowplan.mode" .Values.quota.mode) "Queue")) }}
{{- end }}

{{/* Whether anything may be evicted: "true" or "false". */}}
{{- define "stowplan.evicts" -}}
{{- or (eq (include "stowplan.reclaims" .) "true") (and .Values.hold.enabled .Values.hold.recreateGangs) }}
{{- end }}

{{/* Whether replicas narrow what is asked about quota: "true" or "false". */}}
{{- define "stowplan.narrowsQuota" -}}
{{- and (eq .Values.quota.rollout "Automatic") (ne (include "stowplan.mode" .Values.quota.mode) "Off") }}
{{- end }}

{{/* A setting as an environment variable holds it. */}}
{{- define "stowplan.setting" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if kindIs "slice" . }}{{ join "," . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* (dict "root" $ "process" one of stowplan.processes) */}}
{{- define "stowplan.env" -}}
{{- $process := .process }}
{{- $leads := has "control" $process.args | or (has "--control" $process.args) }}
{{- with .root }}
- name: STOWPLAN_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: STOWPLAN_POLICIES
  value: /etc/stowplan/policies
- name: STOWPLAN_POLICY_RESOURCES
  value: {{ include "stowplan.policyResources" . | quote }}
- name: STOWPLAN_PORT
  value: {{ add .Values.webhook.port $process.portShift | quote }}
- name: STOWPLAN_PROBE_PORT
  value: {{ add .Values.webhook.probePort $process.portShift | quote }}
{{- if .Values.webhook.clients.caConfigMap }}
- name: STOWPLAN_CLIENT_CA
  value: /etc/stowplan/clients/ca.crt
- name: STOWPLAN_CLIENT_ALLOWED_NAMES
  value: {{ .Values.webhook.clients.allowedNames | join "," }}
{{- end }}
- name: STOWPLAN_DEBUG_PAGES
  value: {{ .Values.debug.enabled | quote }}
{{- if and .Values.dashboard.enabled (eq $process.component "webhook") }}
- name: STOWPLAN_DASHBOARD_PORT
  value: {{ .Values.dashboard.port | quote }}
{{- end }}
- name: STOWPLAN_METRICS_PORT
  value: {{ add .Values.metrics.port $process.portShift | quote }}
{{- if .Values.metrics.enabled }}
- name: STOWPLAN_METRICS_HOST
  value: {{ dig "host" "::" .Values.settings | quote }}
{{- end }}
- name: STOWPLAN_LEASE
  value: {{ include "stowplan.fullname" . }}
- name: STOWPLAN_PLACEMENT_MODE
  value: {{ include "stowplan.mode" .Values.placement.mode | quote }}
- name: STOWPLAN_QUOTA_MODE
  value: {{ include "stowplan.mode" .Values.quota.mode | quote }}
- name: STOWPLAN_QUOTA_ROLLOUT
  value: {{ .Values.quota.rollout | quote }}
- name: STOWPLAN_WEBHOOK_CONFIGURATIONS
  value: {{ include "stowplan.fullname" . }}
{{- if .Values.hold.enabled }}
- name: STOWPLAN_HOLD
  value: "true"
- name: STOWPLAN_HOLD_MAX
  value: {{ .Values.hold.max | int | quote }}
- name: STOWPLAN_HOLD_SECONDS
  value: {{ .Values.hold.seconds | int | quote }}
- name: STOWPLAN_PREEMPTION
  value: {{ .Values.preemption.enabled | quote }}
- name: STOWPLAN_HARD_RECLAIM_NAMESPACES
  value: {{ join "," .Values.quota.hardReclaimNamespaces | quote }}
- name: STOWPLAN_RECREATE_GANGS
  value: {{ .Values.hold.recreateGangs | quote }}
{{- end }}
- name: STOWPLAN_BINDING
  value: {{ include "stowplan.binds" . | quote }}
{{- if and $leads (eq (include "stowplan.binds" .) "true") }}
- name: STOWPLAN_BINDING_NAMESPACES
  value: {{ include "stowplan.namespaceSelectorText" (dict "for" .Values.placement "label" "stowplan.dev/placement") | quote }}
- name: STOWPLAN_LEADER_SERVICE
  value: {{ include "stowplan.leader" . }}
- name: STOWPLAN_POD_IPS
  valueFrom:
    fieldRef:
      fieldPath: status.podIPs
{{- end }}
- name: STOWPLAN_OUTCOME
  value: {{ .Values.outcome.enabled | quote }}
- name: STOWPLAN_EXCLUDED_NAMESPACES
  value: {{ include "stowplan.excludedNamespaces" . | fromJsonArray | join "," }}
- name: STOWPLAN_DRAIN_SECONDS
  value: {{ .Values.shutdown.drainSeconds | quote }}
{{- if eq .Values.certificates.mode "SelfManaged" }}
- name: STOWPLAN_CERTIFICATE_SECRET
  value: {{ include "stowplan.secret" . }}
- name: STOWPLAN_CERTIFICATE_NAMES
  value: {{ include "stowplan.certificateNames" . | fromJsonArray | join "," }}
{{- else }}
- name: STOWPLAN_TLS_CERT
  value: /etc/stowplan/tls/tls.crt
- name: STOWPLAN_TLS_KEY
  value: /etc/stowplan/tls/tls.key
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: STOWPLAN_{{ $name | snakecase | upper }}
  value: {{ include "stowplan.setting" $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The files of the policies. */}}
{{- define "stowplan.policyFiles" -}}
{{- range .Values.policies.shipped }}
{{- $text := $.Files.Get (printf "files/policies/%s.yaml" .) }}
{{- if not $text }}
{{- $known := list }}
{{- range $path, $_ := $.Files.Glob "files/policies/*.yaml" }}
{{- $known = append $known (base $path | trimSuffix ".yaml") }}
{{- end }}
{{- fail (printf "policies.shipped: there is no policy `%s`; there are: %s" . (join ", " $known)) }}
{{- end }}
shipped-{{ . }}.yaml: |
  {{- $text | nindent 2 }}
{{- end }}
{{- range $name, $policy := .Values.policies.inline }}
{{ $name }}.yaml: |
  {{- if kindIs "string" $policy }}
  {{- $policy | nindent 2 }}
  {{- else }}
  {{- toYaml $policy | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Whether policies are taken from the API too: "true" or "false". */}}
{{- define "stowplan.policyResources" -}}
{{- and .Values.policies.resources.enabled (ne (include "stowplan.mode" .Values.placement.mode) "Off") }}
{{- end }}

{{/* What the pods of hooks and tests have in common. */}}
{{- define "stowplan.hookPod" -}}
restartPolicy: Never
securityContext:
  {{- include "stowplan.podSecurityContext" . | nindent 2 }}
{{- with include "stowplan.pullSecrets" . | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "stowplan.hookContainer" -}}
image: {{ include "stowplan.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}

{{/* Rights of whoever runs `stowplan release`. */}}
{{- define "stowplan.releaseRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
{{- end }}

{{/* The container of a command: (dict "root" $ "args" (list "release" ...)). */}}
{{- define "stowplan.commandContainer" -}}
name: {{ first .args }}
{{ include "stowplan.hookContainer" .root }}
args:
  {{- toYaml .args | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
resources:
  requests:
    cpu: 50m
    memory: 96Mi
  limits:
    memory: 256Mi
{{- end }}

{{/* The container of a script: (dict "root" $ "script" "..." "env" (dict)). */}}
{{- define "stowplan.scriptContainer" -}}
name: script
{{- with .root }}
{{ include "stowplan.hookContainer" . }}
command: [python, -c]
args:
  - |
    {{- .Files.Get $.script | nindent 4 }}
env:
{{- range $name, $value := $.env }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
resources:
  requests:
    cpu: 50m
    memory: 64Mi
  limits:
    memory: 128Mi
{{- end }}
{{- end }}

{{/* The pod of a hook or a test: (dict "root" $ "name" "..." "script" "..." "env" (dict)). */}}
{{- define "stowplan.scriptPod" -}}
{{ include "stowplan.hookPod" .root }}
serviceAccountName: {{ .name }}
containers:
  - {{- include "stowplan.scriptContainer" . | nindent 4 }}
{{- end }}
