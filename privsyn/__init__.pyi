from privsyn.api.project import Project as Project
from privsyn.api.released import Release as Release
from privsyn.errors import PrivsynError as PrivsynError

__version__: str
