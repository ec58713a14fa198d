"""Clusters on which programs run: one module a platform, each recorded before it is created."""

from gpu_worker.deployment.platforms import PLATFORMS

#: A new platform is a module and a line here.
PLATFORMS.update({
    "local": "vispark.clusters.local",
    "standalone": "vispark.clusters.standalone",
    "kubernetes": "vispark.clusters.kubernetes",
    "yarn": "vispark.clusters.yarn",
})
